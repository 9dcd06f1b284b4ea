"""A run of the data pipeline every hour, and its plan applied to the brokers, as an Airflow DAG."""

from datetime import datetime, timedelta

from airflow import DAG
from airflow.operators.bash import BashOperator

PLACES = "--lake /srv/lake --out /srv/tables"

with DAG(
    "overlane_pipeline",
    schedule="10 * * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
) as dag:
    # Exit status 3 (the telemetry is not as expected) fails the task too: no plan is applied then.
    run = BashOperator(
        task_id="run", bash_command=f"overlane pipeline run {PLACES} --expect /etc/overlane/expect.toml --json"
    )
    apply_plan = BashOperator(
        task_id="apply", bash_command="overlane plan apply /srv/tables /etc/overlane/network.toml"
    )
    run >> apply_plan
