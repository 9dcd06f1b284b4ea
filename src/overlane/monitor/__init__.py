"""The monitor: one web page that shows an overlay as it is, as it was, and as a simulation of it went.

    picture      what there is to see at one moment, and what changed from one to the next
    happenings   what happened, in words
    timeline     happenings as they come
    figures      from what brokers have counted to shares in time, percentiles and rates
    observing    from the answers of brokers to pictures and happenings
    past         the pictures so far, within bounds; what a page is given when it comes
    recordfile   the same as a file
    simulated    the same from a simulation
    asking       brokers are asked through their admin API
    chaos        what may be done to links and brokers by hand
    streams      a publisher and a subscriber, to have something to watch
    watch        the driver: asks again and again, keeps the past, tells every page
    server       HTTP for the page
    serving      a watch or a recording, and its server, from start to end
    page/        what runs in the browser

The first six touch nothing of the world. Dependencies point upwards in this list, down to the page.
"""
