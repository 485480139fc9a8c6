# Removes everything of one lab from this machine. Run as: sh -c "$SCRIPT" NAME DIR ID [wait]
# It is a script of its own process, so that it also runs when the lab's process was killed: with "wait" it first
# waits for the end of its standard input, which is a pipe that the lab's process holds open.
# Idempotent; prints what is left and exits with 1 when something is.
dir=$1
id=$2
trap '' INT HUP TERM
[ "$3" = wait ] && cat >/dev/null
exec </dev/null

cgroups() {
    find /sys/fs/cgroup -maxdepth 3 -type d \( -name "plegtrace-lab-$id" -o -name "plegtracelab$id.slice" \) 2>/dev/null
}

# Ids of our containers, 64 hexadecimal digits: with a kubelet their cgroups lie outside of ours, but carry the id.
containers() {
    find "$dir/state" -mindepth 3 -maxdepth 3 -type d \
        \( -path '*runtime.v2.task/k8s.io/*' -o -path '*runtime.v2.task/moby/*' \) 2>/dev/null |
        sed 's,.*/,,' | grep -xE '[0-9a-f]{64}'
}
ids=$(containers)

# Our daemons, shims and runcs carry the mark in their environment; what runs in containers sits in our cgroups or in
# one that is named by the container.
ours() {
    grep -lszxF "PLEGTRACE_LAB=$dir" /proc/[0-9]*/environ | cut -d/ -f3
    [ -n "$ids" ] && grep -lsF "$ids" /proc/[0-9]*/cgroup | cut -d/ -f3
    cgroups | while read -r group; do find "$group" -name cgroup.procs -exec cat {} + 2>/dev/null; done
}

mounts() {
    cut -d' ' -f5 /proc/self/mountinfo | grep -F "$dir/" | sort -r
}

# Also those that are named by our containers: in a frozen cgroup of version 1 even SIGKILL waits.
thaw() {
    {
        cgroups
        for container in $ids; do find /sys/fs/cgroup -type d -path "*/$container*" -prune; done
    } | while read -r group; do
        find "$group" -name freezer.state | while read -r file; do echo THAWED >"$file"; done
        find "$group" -name cgroup.freeze | while read -r file; do echo 0 >"$file"; done
    done 2>/dev/null
}

# SIGKILL also ends a stopped process; the loop catches what was being forked meanwhile.
turns=0
while pids=$(ours | sort -un) && [ -n "$pids" ] && [ $turns -lt 200 ]; do
    kill -KILL $pids 2>/dev/null
    [ $turns -eq 0 ] && thaw
    turns=$((turns + 1))
    sleep 0.05
done

# Outside of our directory: shim sockets, network namespaces of containerd 1.4, CNI results, logs of pods.
find "$dir/state" -maxdepth 4 \( -name address -o -name bootstrap.json \) \
    -exec grep -ohE '/run/containerd/s/[0-9a-f]{64}' {} + 2>/dev/null | sort -u | while read -r socket; do rm -f "$socket"; done
results=/var/lib/cni/results
grep -ohE '/(var/)?run/netns/cni-[0-9a-f-]+' $results/plegtrace-lab-"$id"-* 2>/dev/null | sort -u | while read -r netns; do
    umount "$netns" 2>/dev/null
    rm -f "$netns"
done
rm -f $results/plegtrace-lab-"$id"-*
find "$dir/root" "$dir/state" -maxdepth 3 -path '*/sandboxes/*' 2>/dev/null | while read -r sandbox; do
    rm -f "$results/cni-loopback-${sandbox##*/}-lo"
done
rm -rf /var/log/pods/*-plegtrace-lab-"$id"_* /var/log/containers/*-plegtrace-lab-"$id"_*

# dockerd makes this at a path that cannot be changed; a Docker of the machine has more than that there.
[ -d "$dir/docker" ] && [ "$(ls -A /run/docker 2>/dev/null)" = plugins ] && rmdir /run/docker/plugins /run/docker

# A limit of a device stays when the device goes, and the next one of its number would have it.
device=$(mountpoint -d "$dir/root" 2>/dev/null) &&
    echo "$device 0" 2>/dev/null >/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device
mounts | while read -r point; do umount "$point" 2>/dev/null || umount -l "$point"; done
ip link show "ptlab$id" >/dev/null 2>&1 && ip link del "ptlab$id"

for container in $ids; do
    find /sys/fs/cgroup -depth -type d -path "*/$container*" -exec rmdir {} + 2>/dev/null
done
turns=0
while [ -n "$(cgroups)" ] && [ $turns -lt 100 ]; do
    cgroups | while read -r group; do find "$group" -depth -type d -exec rmdir {} + 2>/dev/null; done
    turns=$((turns + 1))
    [ -z "$(cgroups)" ] || sleep 0.05
done

# A kubelet changes these for the whole machine; the last lab puts them back.
if [ -f "$dir/sysctls" ] && ! find "${dir%/*}" -maxdepth 2 -path '*/plegtrace-lab-*/sysctls' ! -path "$dir/*" | grep -q .; then
    while read -r file value; do echo "$value" >"$file"; done <"$dir/sysctls"
fi

if [ -n "$(mounts)" ]; then
    echo "lab $id: still mounted: $(mounts | tr '\n' ' ')" >&2
    exit 1
fi
rm -rf --one-file-system "$dir"
left=$(ours | sort -un)
[ -n "$left" ] && echo "lab $id: still running: $left" >&2
[ -n "$(cgroups)" ] && echo "lab $id: cgroups left: $(cgroups)" >&2
[ -e "$dir" ] && echo "lab $id: directory left: $dir" >&2
[ -z "$left$(cgroups)" ] && [ ! -e "$dir" ]
