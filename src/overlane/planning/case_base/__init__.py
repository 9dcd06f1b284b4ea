"""The case base: policies computed in advance, for every state of the brokers.

`cases` plans the normal state and lists the others; `solve` computes the policy of one of them, a pure function of the
normal plan and the case, so that cases can be distributed over cores or machines.
"""

from overlane.planning.case_base.cases import Case, NormalPlan, failure_cases, low_load_cases, normal_plan
from overlane.planning.case_base.solve import CasePolicy, solve_case, solve_state, switchable

__all__ = [
    "Case",
    "CasePolicy",
    "NormalPlan",
    "failure_cases",
    "low_load_cases",
    "normal_plan",
    "solve_case",
    "solve_state",
    "switchable",
]
