"""The monitor: a web page that shows a running overlay, its history, or the recording of a simulation.

    overlay_state        the state of an overlay at one moment, and the delta between two states
    timeline_events      entries of the timeline
    timeline            the timeline: collects events, and links them to the action that may have caused them
    figures             shares in time, percentiles and rates from the counters of brokers
    observer            overlay states and timeline events from the responses of brokers
    history             the states so far, bounded; what a page gets when it connects
    recording_file       a history as a file
    simulation_recorder  a history from a simulation
    telemetry_replay     a history of days from the telemetry of brokers
    polling             requests to the admin APIs of all brokers
    traffic             test traffic: a publisher and a subscriber
    live_monitor         the driver: polls brokers, keeps the history, sends deltas to pages
    chaos               fault injection: slow, cut and heal links, stop and start brokers
    server              HTTP server of the page
    page_server          a live monitor or a recording with its server, from start to end
    page/               the web page

The first six do no I/O. Modules import only those above them in this list.
"""

__all__ = ["page_server", "recording_file", "simulation_recorder", "telemetry_replay"]
