//! The report for programs: one JSON document. This page is the specification of the format.
//!
//! `schema_version` is 2. Fields may be added without a new version; a field that changes its meaning, its unit or its
//! type, or goes away, makes a new one. What is not known is `null`; lists may be empty but are always there.
//!
//! Conventions: `…_ns` are nanoseconds. A field `…_at` is a moment: an object of `mono_ns` (CLOCK_MONOTONIC) and `time`
//! (the same moment by the wall clock, RFC 3339 in UTC). Texts of the node are as they were found, with control and
//! reordering characters as JSON escapes, so that the document is also safe to look at.
//!
//! | field | content |
//! |---|---|
//! | `schema_version` | 2 |
//! | `tool_version`, `node`, `kernel` | who observed, and where |
//! | `taken_at` | moment of the report |
//! | `observed` | `from_at` (probes on; `null`: never), `window_ns` |
//! | `diagnosis` | `verdict`: `stall`, `slow`, `healthy` or `cannot_tell` (the exit code 1, 1, 0 or 5); `since_at` (when the stall began, `null`: none, or not known), `or_before` (it may have begun earlier); `reasons`: what is held up; `slow`: what takes too long, relists first, empty unless the verdict is `slow`; `doubts`: why there is no answer, each with `kind` and `sentence`, empty unless the verdict is `cannot_tell`; `unknown_cause`: why a stall has no named cause (`no_census`, `events_lost`, `bus_not_followed`, `nothing_fits`; else `null`); `findings`: known causes, what explains most first; `excluded`: what was looked at and is not the cause, each `what` and `why`; `predictions`: what the kubelet will do next |
//! | `diagnosis.reasons[]` | the weightiest first; empty when only a finding tells of the stall: `kind` (`down`, `stuck`, `relist_open`, `list_stale`, `abandoned_handlers`, `calls_open`, `requests_open` (seen on the sockets only), `processes_open`), `sentence`, `explained` (it follows from a finding), and as they apply `component`, `process`, `pid`, `container`, `operation`, `count`, `age_ns`, `at_least`, `waiting_in` |
//! | `diagnosis.slow[]` | `kind` (`relists`; `calls` of the kubelet, commands of `runc`, `cni` plugins, of one `operation`), `sentence`, `count` (in the last minute), `p50_ns`, `normal_ns` (the most it takes on a sound node), `component` (where most of the time goes; `null`: between two, or not known), `doing` (as in `relist_time`) and its `share_percent` |
//! | `diagnosis.findings[]` | `id` (see `plegtrace explain`; never changes its meaning), `title`, `area`, `proof` (`real`, `rebuilt`, `scripted`, `story`: how tests prove the rule), `severity` (`stall`: holds something up; `slow`: slows it down; `notice`), `confidence` (`low`, `medium`, `high`), `doubts`, `headline`, `culprit` (`component`, `pid`, `container`, `sentence`), `age_ns`, `at_least`, `reach` (3 the relist, 2 requests, 1 processes, 0 nobody known), `victims`, `evidence` (each `source` and `sentence`), `next`, `trap`, `also` (ids of other causes with the same culprit) |
//! | `last_successful_list` | `state`: `seen`, `not_seen` or `untraced`; `start_at` (of its relist, as the kubelet reckons), `age_ns`, `at_least` (it may be older) |
//! | `targets` | `component`, `pid`, `exe`, `version`, `go_version`, `socket`, `unproved`, `gone_at`, `gone_how` |
//! | `stuck` | what does not move, what holds others up first: `kind` (`stopped`, `frozen`, `process`, `unreaped`, `output_held`, `unreported`, `bus`, `request`), `sentence`, `pid`, as they apply `component`, `command`, `freezer`, `pipe`, `unreported` (`runtime`; of a container its word `state`, of a command its id `exec`; `zombie`), `bus` (who does not answer calls over D-Bus: `party` (`bus`, `systemd`, `other`), `process` (`null`: not known), `calls`, and of the oldest `caller`, `interface`, `member`, `destination`, `waits_for`), `request` (also `containers`: what it is about, `target_known`: that is certain, and as a waiter that it waits for this very thing, `lock_of`: the container whose status it waits to lock); `age_ns`, `at_least` (it may be older), `container` (`id`, `sandbox`, `name`, `pod`, `namespace`, `source`), `parks` (where its threads wait: `threads`, `tid`, `state`, `syscall`, `kernel_stack`, `user_function`), `frames` (Go functions, innermost first), `sockets` with unread bytes, `waiters`: the nearest first, each with `kind` (`process`, `requests`, `relist`) and `pid` |
//! | `stuck[].request`, `census.requests` | requests that goroutine stacks show to be in flight: `component`, `pid`, `operation`, `count`, `goroutines`, `age_ns`, `at_least`, `wait_reason`, `waits_for` (`shim`, `cni`, `exec_output`, `child`, `runtime`, `unknown`, or a lock), `method`, `holds` (`container_status_lock`, `sandbox_status_lock`, `metadata_transaction`, `network_configuration_lock`), `frames` |
//! | `open` | `read_at`, `complete`, `calls`: oldest first, each with `component`, `layer`, `operation`, `pid`, `goroutine`, `start_at`, `age_ns`, `caller` (`not_asked`, `waiting`, `gone`, `foreign`, `own`: our census, `unknown`), `caller_gone_at`, `abandoned`, `replied`, `long_lived`, `goroutine_checked`; `untraced`: calls that no probe saw begin, because they are older, by the stacks of their goroutines, oldest first: `component`, `operation` (`relist` of a kubelet), `pid`, `count`, `goroutines` (at most 32), `age_ns`, `at_least`; `ended_unseen`, `unwound`, `process_exited`: entries that were no open calls |
//! | `relists` | by start: `pid`, `start_at`, `duration_ns`, `open`, `interval_ns`, `list_phase_ns`, `status_phase_ns`, `status_pods`, `calls`, `failed_calls`, `list` (`ok`, `failed`, `pending`, `unknown`), `misfits`, `time`, `tree` |
//! | `requests` | requests that are no part of a relist: open ones, oldest first, then the longest of each operation that have ended, longest first; a bounded number: `operation`, `component`, `pid` (of the root), `start_at`, `duration_ns`, `open`, `caller` (of a root that is a handler, as in `open`; `unknown` when several fit; else `not_asked`), `container` (what it is about, `null` unless that is certain), `left_out` (processes that may have run for it and are not in its tree), `misfits`, `time`, `tree` |
//! | `relist_time` | where the time of all relists of the window goes: `count`, `open` (of these), `wall_ns` (their lengths together), `parts`: the largest first, they add up to `wall_ns`: `component` (`null`: between two, or not known), `doing` (`runs`: not parked, that is on a processor, ready to run or in a system call; `lock`; `waits`; `inside`: in its calls, not broken down; `transport`: between call and handler, or four parts of it, as in `leaves`; `unanswered`: in calls whose handler was not seen; `program`; `unexplained`), `program`, `sum_ns`, `p50_ns`, `p99_ns`, `max_ns` (per relist; 0 of one that never comes there) |
//! | `request_time` | the same for the longest `requests` of the operation with the longest of all, which is its `operation`; `null`: there is none |
//! | `requests[].time`, `tree` | as those of a relist |
//! | `relists[].time` | `null` when parks are not followed; the whole relist by what was measured: `not_parked_ns` (on a processor, ready to run, or in a system call), `parked_ns`, `transport_ns` (parked between client and handler), `short_parks_ns`, `process_ns` (in processes that ran for it), `unexplained_ns`; they add up to `duration_ns` |
//! | `relists[].tree` | a span: `component`, `layer`, `operation`, `pid`, `goroutine` (0 of a process, whose `layer` is `process`), `start_ns` (monotonic), `duration_ns`, `self_ns`, `open`, `result` (`ok`, `failed`, `unknown`), `leaves`, `children` |
//! | `leaves` of a span | none when parks are not followed; what its `self_ns` consists of: `kind` (`not_parked`, `parked`, `transport` or, where one request on the wire tells them apart, `transport_send` (not written yet by the client), `transport_accept` (not taken yet by the server), `transport_answer` (not written yet by the server), `transport_receive` (not taken yet by the client), `short_parks`, `process`, `unexplained`), `sum_ns`, and for parks of one place `count`, `open` (one lasts), `wait_reason` (the runtime's number), `stack` (Go functions, innermost first) |
//! | `operations` | one per table, process and operation: `side` (`relist`, `phase`, `counted`, `bare`, `server`, `runc_phase`), `component`, `pid` (0: all processes of runc), `operation`, `service`, `count`, `failed`, `unknown_result`, `sum_ns`, `max_ns`, `p50_ns`, `p90_ns`, `p99_ns`, `log2_ns` (element *i*: durations of 2^i to 2^(i+1) ns; trailing zeros left out), `unwound`, `kernel` |
//! | `operations[].kernel` | what the kernel side counted for exactly these calls: `hits`, `calls`, `failed`, `unmatched`, `sum_ns`, `max_ns`, `log2_ns` |
//! | `processes` | `read_at` (`null`: processes are not followed), `complete`, `open`: short-lived processes that have not ended, oldest first; `commands`: figures of those that ended; `slowest` and `failed`: some of them; `workloads` and `workloads_ended`: first processes of containers and of execs; `ended_unseen` |
//! | a process | `kind`: `runc` (`action`: its sub-command, empty when not read), `runc_init`, `shim` (`action`), `cni` (`program`, `action`), `hook` (`program`), `helper` (`program`), `workload`, `starting`, `component` (`program`) |
//! | `processes.open[]` | a process: `pid`, `start_at` (`null`: before the probes), `age_ns`, `at_least`, `late` (it should have ended), `comm`, `container`, `bundle`, `started_for` (of `runc_init`: the sub-command of its runc), `parents` (each `pid` and a process), `phase` (left out when it is in none that is seen) |
//! | `phase` of a process, of `stuck[]` and of its waiters | what a runc is doing, outermost first, so the last one is where it is: `operation` (function of runc, with the end of its package), `start_at`, `age_ns` |
//! | `processes.commands[]` | a process: `count`, `failed` (exit code not 0), `killed` (by a signal), `sum_ns`, `max_ns`, `p50_ns`, `p90_ns`, `p99_ns`, `log2_ns`; `runc_init` ends with the `execve` of the workload |
//! | `processes.slowest[]`, `failed[]` | a process: `pid`, `container`, `start_at`, `duration_ns`, `how` (`exited`, `killed`, `became_workload`, `replaced`), `exit_code`, `signal` |
//! | `processes.workloads[]` | `pid`, `container`, `started_for`, `start_at`, `ended_at`; `how`, `exit_code`, `signal` when it has ended |
//! | `messages` | left out unless the source `wire` is on: requests between runtime and shims: `read_at`, `complete`, `methods` (`service`, `method`, both empty when not read; `count` (answered), `unanswered` (ended with a process), `open`, `sum_ns`, `max_ns`, `p50_ns`, `p99_ns`, `log2_ns`), `open`: those without an answer, oldest first: `service`, `method`, `start_at`, `age_ns`, `pid` (who asks), `answerer_pid` (`null`: not known), `socket` (inode number, at who asks), `stream`, `unsent` (the buffer is full), `long_lived` |
//! | `grpc` | left out unless the source `wire` is on: gRPC requests of the kubelet, read from its connections to the runtime; as `messages`, but `unanswered` are those that ended without trailers (reset, refused, or with a process or the connection), and `method` is `unknown#k` with an empty `service` where the header table of a connection is older than plegtrace, until probes in kubelet and runtime have told the name |
//! | `bus` | left out unless the source `wire` is on: calls of runc, kubelet and runtimes over D-Bus: `read_at`, `complete`, `methods` (`interface`, `member`, `destination`, empty when not read; `connection`: not a call, but from the first byte of a connection to the first line of the bus; `count` (answered), `errors` (of these), `last_error`, `unanswered` (ended with process or connection), `open`, and durations as in `messages`, until the caller has read the answer), `open`: those without an answer, oldest first: `interface`, `member`, `destination`, `start_at`, `age_ns`, `pid` (who calls) and `comm` (empty when young), `bus_pid` (`null`: not known), `owner_pid` (systemd, when it is to answer; `null`: not known), `socket` (inode number), `serial`, `waits_for` (`accept`, `room` (the buffer is full: not sent), `bus` (has not read it), `caller` (has not read what came), `answer` (the bus has read it), `unknown`), `unread_by_bus`, `unread` (bytes; `null`: not known), `readers`: clients of the bus that have not read everything, `pid` (`null`: not known), `socket`, `unread`; `peers`: processes that calls older than a second wait for: `component` (`bus-daemon`, `systemd`), `pid`, `comm`, `state`, `wchan` (kernel function), `still_ns` (seen so for), `ran_ns` (on a CPU) of `over_ns`, `unread` (bytes from the bus; `null`: not known) |
//! | `joins` | handlers `joined` to a client call, of these `joined_by_stream` by the number of their HTTP/2 stream and the others by time; `ambiguous`, `foreign`, `own`: that answered our census |
//! | `census` | `rounds`, `versions` (what programs of the node say of themselves: `program`, `version`), `round` (the last: `began_ns`, `ended_ns`, `processes`, `unanswered`, `left_out`, `containers`, `says`: what the runtime says of them over the CRI, with our `calls`, `ended`: those whose first process has ended), `requests`, `processes`, `by_hand` (processes that a person started, each also with `typed_in`: runc, and tools for containers; never taken for the node's), `goroutines` as they were found |
//! | `probes` | `mode`, `sites`, `took_ns`, and `hooks`: `index`, `component`, `layer`, `operation`, `symbol`, `sites`, `records`, `hits` |
//! | `refused` | `source`, `component`, `what`, `why`, `matters` |
//! | `losses` | `stage`, `reason`, `sentence`, `count`, `is_loss` |
//! | `tally` | `events`, `calls`, `covered`, `marks`, `unwound`, `forgotten`, `restarted`, `processes`, `facts`, `parks` |
//! | `cpu` | what kubelet and runtime got of the processors in the last minute: `pressure_ns` of `pressure_over_ns` (some task of the node waited for one; `null`: not known), `daemons`: `component`, `pid`, `over_ns` (the time that the others are of), `ran_ns` and `waited_ns` (ready, but on no processor; both added up over threads, lower bounds), `quotas` over it: `path` of the cgroup, `quota_ns` in each `period_ns`, `periods`, `throttled` (of these), `throttled_ns` (added up over processors) |
//! | `cost` | `cpu_ns`, `wall_ns`, `rss_bytes`, `rss_peak_bytes`, `child_peak_bytes` (of the largest child of the census), `probes_ns` (CPU time the traced programs spent in probes: an estimate from above, hits times what a hit takes in a VM; null when not counted) |
//! | `stopped` | why observing ended: `duration`, `interrupt`, `enough`, `targets_gone`, `recording_over` |

mod bus;
mod calls;
mod census;
mod cpu;
mod doc;
mod facts;
mod finding;
mod messages;
mod processes;
mod relist;
mod report;
mod request;
mod slow;
mod stuck;
mod time;
mod tree;
mod verdict;

pub use doc::SCHEMA_VERSION;
pub(in crate::render) use facts::{RefusedDoc, all, component, layer};
pub use report::report;
pub(in crate::render) use report::write_document;
