#!/bin/sh
# Installs plegtrace in a Debian that does not know it, uses it, restarts the machine, uses it again, and purges it.
# A line for each check, as the tests of guests print them; the counts outlast the restart.
here=/run/payload
kept=/var/tmp/packages
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

passed=0 failed=0 restarted=
[ -e "$kept" ] && { . "$kept"; restarted=1; }

# check NAME FUNCTION: what it prints last is said of it.
check() {
    if said=$("$2" 2>&1); then
        passed=$((passed + 1)) word=PASS
    else
        failed=$((failed + 1)) word=FAIL
    fi
    [ "$word" = FAIL ] || said=$(printf '%s\n' "$said" | tail -n 1)
    echo "VM-TEST $word $1: $(printf '%s' "$said" | tr '\n' ' ' | cut -c 1-600)"
}

# wait_for SECONDS COMMAND…
wait_for() {
    left=$1
    shift
    until "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || { echo "in vain: $*"; return 1; }
        sleep 1
    done
}

boots() { echo "Linux $(uname -r)"; }

installs() {
    # Our guests leave manual pages out to be small.
    rm -f /etc/dpkg/dpkg.cfg.d/*
    dpkg -i "$here"/plegtrace.deb && [ "$(command -v plegtrace)" = /usr/bin/plegtrace ] && plegtrace --version | head -n 1
}

# Nothing runs that was not asked for.
installed_is_not_running() {
    ! systemctl is-active --quiet plegtrace && ! systemctl is-enabled --quiet plegtrace && echo 'neither enabled nor active'
}

# Without a kubelet that is what it says, and with 1: a node without one is not healthy. A guest on a busy machine may be too slow to tell
# at once (5).
observes() {
    for _ in 1 2 3 4 5; do
        text=$(plegtrace 2>&1)
        code=$?
        [ "$code" = 5 ] || break
    done
    [ "$code" = 1 ] || [ "$code" = 4 ] || { echo "exit code $code: $text"; return 1; }
    printf '%s' "$text" | grep -q kubelet || { echo "$text"; return 1; }
    echo "exit code $code: $(printf '%s' "$text" | grep -E '^(STALL|FAILING|HEALTHY|CANNOT TELL|SLOW)' | head -n 1)"
}

doctor() {
    text=$(plegtrace doctor 2>&1)
    code=$?
    case $code in 0 | 3 | 4 | 5) ;; *) echo "exit code $code: $text"; return 1 ;; esac
    printf '%s' "$text" | grep -q "$(uname -r)" || { echo "the kernel is not named: $text"; return 1; }
    echo "exit code $code"
}

manual() {
    page=/usr/share/man/man1/plegtrace.1.gz
    [ -s "$page" ] || return 1
    for topic in plegtrace plegtrace-watch; do
        MANPAGER=cat man "$topic" >/tmp/page 2>&1 && grep -q '^NAME' /tmp/page || { cat /tmp/page; return 1; }
    done
    echo "man plegtrace: $(wc -l </tmp/page) lines of plegtrace-watch"
}

completions() {
    bash -n /usr/share/bash-completion/completions/plegtrace \
        && grep -q plegtrace /usr/share/zsh/vendor-completions/_plegtrace \
        && grep -q plegtrace /usr/share/fish/vendor_completions.d/plegtrace.fish && echo 'bash, zsh, fish'
}

# Its state is there, be it that it waits for a kubelet.
watches() {
    wait_for 120 systemctl is-active --quiet plegtrace && wait_for 120 test -s /var/lib/plegtrace/state.json || return 1
    text=$(plegtrace check 2>&1)
    code=$?
    case $code in 0 | 1 | 2) echo "exit code $code: $text" ;; *) echo "exit code $code: $text"; return 1 ;; esac
}

enables() { systemctl enable --now plegtrace && watches; }

tarball() {
    mkdir /var/tmp/tar && cd /var/tmp/tar && tar -xzf "$here"/plegtrace.tar.gz && cd plegtrace-* \
        && ./plegtrace --version | head -n 1 && ./plegtrace explain R1 >/dev/null \
        && tar -xzf "$here"/kustomize.tar.gz && ls kustomize/kustomization.yaml kustomize/daemonset.yaml >/dev/null && rm -r /var/tmp/tar
}

purges() {
    dpkg -P plegtrace || return 1
    left=$(find / -xdev -name '*plegtrace*' -not -path '/proc/*' -not -path '/var/log/*' -not -path '/var/lib/dpkg/*' -not -path '/var/cache/man/*' -not -path '/tmp/systemd-private-*')
    [ -z "$left" ] || { echo "left: $left"; return 1; }
    ! dpkg -s plegtrace >/dev/null 2>&1 && ! systemctl cat plegtrace >/dev/null 2>&1 || { echo 'still known'; return 1; }
    ! grep -lx plegtrace /proc/[0-9]*/comm 2>/dev/null || { echo 'still running'; return 1; }
    echo 'nothing left'
}

if [ -z "$restarted" ]; then
    check boots boots
    check installs installs
    check installed_is_not_running installed_is_not_running
    check observes observes
    check doctor doctor
    check manual manual
    check completions completions
    check tarball tarball
    check enables enables
    printf 'passed=%s failed=%s\n' "$passed" "$failed" >"$kept"
    sync
    systemctl reboot
    exit
fi
check watches_after_a_restart watches
check purges purges
word=ok
[ "$failed" = 0 ] || word=failed
echo "VM-VERDICT $word passed=$passed failed=$failed skipped=0"
sync
systemctl poweroff --force --force
