#!/bin/sh
# Runs the number of routing brokers on this machine that the leader wants, with `launcher = "command"`:
#
#   [routing]
#   launcher = "command"
#   command = ["examples/scale-routing.sh", "zk1:2181,zk2:2181,zk3:2181", "/overlane", "routing-data", "7100"]
#
# The words are the addresses and the path of ZooKeeper, a directory for data and logs, and the first of three ports for
# each broker. The leader adds the number of brokers. Start the first one by hand, with 1 as the last word.
#
# It can be run again at any time: running brokers stay, and those above the number are stopped. They hand over their
# topics first.
set -eu
hosts=$1 path=$2 data=$3 port=$4 count=$5
mkdir -p "$data"

is_running() {
    [ -f "$data/$1.pid" ] && kill -0 "$(cat "$data/$1.pid")" 2>/dev/null
}

number=1
while [ "$number" -le "$count" ]; do
    name=routing-$number
    first=$((port + 3 * (number - 1)))
    if ! is_running "$name"; then
        nohup "${OVERLANE:-overlane}" broker --name "$name" --role routing --zookeeper "$hosts" --path "$path" \
            --mqtt "127.0.0.1:$first" --overlay "127.0.0.1:$((first + 1))" --admin "127.0.0.1:$((first + 2))" \
            --data "$data/$name" </dev/null >>"$data/$name.log" 2>&1 &
        echo $! >"$data/$name.pid"
    fi
    number=$((number + 1))
done

for file in "$data"/routing-*.pid; do
    [ -f "$file" ] || continue
    name=$(basename "$file" .pid)
    if [ "${name#routing-}" -gt "$count" ]; then
        if is_running "$name"; then kill -TERM "$(cat "$file")"; fi
        rm -f "$file"
    fi
done
