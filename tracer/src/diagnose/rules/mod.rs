//! Known causes, one file per cause. Ids are never reused; a cause that no longer occurs keeps its file.

mod d10_systemd_reads_its_units;
mod d12_systemd_hangs_in_the_kernel;
mod d13_systemd_does_not_run;
mod d14_bus_daemon_does_not_read;
mod d15_nobody_listens_at_the_bus;
mod d1_serials_of_systemd_run_out;
mod d2_systemd_is_busy;
mod d3_systemd_does_not_answer;
mod d4_job_of_systemd_is_not_done;
mod d5_no_connections_left;
mod d6_queue_of_the_bus_is_full;
mod d7_connections_wait_to_be_accepted;
mod d8_systemd_is_not_on_the_bus;
mod d9_bus_daemon_is_busy;
mod h1_helper_does_not_end;
mod k10_kubelet_locked_itself_out;
mod k1_full_event_channel;
mod k2_list_too_large;
mod k3_many_changed_pods;
mod k5_kubelet_in_a_dead_mount;
mod k7_kubelet_does_not_run;
mod k8_kubelet_waits_to_reconnect;
mod k9_plugin_does_not_answer;
mod l1_api_path;
mod l2_status_only;
mod l3_pod_stays_terminating;
mod n1_cni_plugin_hangs;
mod n2_cni_plugins_queue_for_a_lock;
mod n3_agent_of_a_plugin;
mod o1_held_off_the_cpu;
mod o2_exec_storm;
mod o3_memory_is_short;
mod o4_no_more_tasks;
mod o5_no_more_files;
mod r11_lock_of_one_container;
mod r12_create_stats_a_dead_mount;
mod r14_runtime_frozen;
mod r15_runtime_down;
mod r16_nri_locks_in_opposite_order;
mod r17_pull_gets_no_byte;
mod r1_update_holds_status_lock;
mod r2_slow_disk;
mod r3_unmount_writes_back;
mod r5_go_cni_locks_itself_out;
mod r6_plugin_keeps_the_network_lock;
mod r8_exec_output_held;
mod r9_start_waits_for_a_shim;
mod s10_shim_frozen;
mod s11_exit_held_by_a_tracer;
mod s1_shim_reaper_and_lock;
mod s2_ttrpc_jam;
mod s3_exit_of_a_command_lost;
mod s4_exit_of_a_container_lost;
mod s5_task_delete_waits_for_an_unmount;
mod s7_shim_locks_itself_out;
mod u10_hook_hangs;
mod u11_no_memory_for_filters;
mod u1_rc93_seccomp_pipe;
mod u2_init_waits_for_start;
mod u3_execve_in_a_freezer;
mod u4_container_left_frozen;
mod x11_file_access_agent;
mod x12_audit_queue;
mod x13_unkillable;
mod x3_network_file_system;
mod x4_file_system_frozen;
mod x6_fuse_server;
mod x7_network_namespaces;
mod x9_rcu_grace_period;

use super::Rule;

pub(super) use self::o1_held_off_the_cpu::quotas;

/// All rules, by id.
pub static ALL: &[&Rule] = &[
    &d1_serials_of_systemd_run_out::RULE,
    &d2_systemd_is_busy::RULE,
    &d3_systemd_does_not_answer::RULE,
    &d4_job_of_systemd_is_not_done::RULE,
    &d5_no_connections_left::RULE,
    &d6_queue_of_the_bus_is_full::RULE,
    &d7_connections_wait_to_be_accepted::RULE,
    &d8_systemd_is_not_on_the_bus::RULE,
    &d9_bus_daemon_is_busy::RULE,
    &d10_systemd_reads_its_units::RULE,
    &d12_systemd_hangs_in_the_kernel::RULE,
    &d13_systemd_does_not_run::RULE,
    &d14_bus_daemon_does_not_read::RULE,
    &d15_nobody_listens_at_the_bus::RULE,
    &h1_helper_does_not_end::RULE,
    &k1_full_event_channel::RULE,
    &k2_list_too_large::RULE,
    &k3_many_changed_pods::RULE,
    &k5_kubelet_in_a_dead_mount::RULE,
    &k7_kubelet_does_not_run::RULE,
    &k8_kubelet_waits_to_reconnect::RULE,
    &k9_plugin_does_not_answer::RULE,
    &k10_kubelet_locked_itself_out::RULE,
    &l1_api_path::RULE,
    &l2_status_only::RULE,
    &l3_pod_stays_terminating::RULE,
    &n1_cni_plugin_hangs::RULE,
    &n2_cni_plugins_queue_for_a_lock::RULE,
    &n3_agent_of_a_plugin::RULE,
    &o1_held_off_the_cpu::RULE,
    &o2_exec_storm::RULE,
    &o3_memory_is_short::RULE,
    &o4_no_more_tasks::RULE,
    &o5_no_more_files::RULE,
    &r1_update_holds_status_lock::RULE,
    &r2_slow_disk::RULE,
    &r3_unmount_writes_back::RULE,
    &r5_go_cni_locks_itself_out::RULE,
    &r6_plugin_keeps_the_network_lock::RULE,
    &r8_exec_output_held::RULE,
    &r9_start_waits_for_a_shim::RULE,
    &r11_lock_of_one_container::RULE,
    &r12_create_stats_a_dead_mount::RULE,
    &r14_runtime_frozen::RULE,
    &r15_runtime_down::RULE,
    &r16_nri_locks_in_opposite_order::RULE,
    &r17_pull_gets_no_byte::RULE,
    &s1_shim_reaper_and_lock::RULE,
    &s2_ttrpc_jam::RULE,
    &s3_exit_of_a_command_lost::RULE,
    &s4_exit_of_a_container_lost::RULE,
    &s5_task_delete_waits_for_an_unmount::RULE,
    &s7_shim_locks_itself_out::RULE,
    &s10_shim_frozen::RULE,
    &s11_exit_held_by_a_tracer::RULE,
    &u1_rc93_seccomp_pipe::RULE,
    &u2_init_waits_for_start::RULE,
    &u3_execve_in_a_freezer::RULE,
    &u4_container_left_frozen::RULE,
    &u10_hook_hangs::RULE,
    &u11_no_memory_for_filters::RULE,
    &x3_network_file_system::RULE,
    &x4_file_system_frozen::RULE,
    &x6_fuse_server::RULE,
    &x7_network_namespaces::RULE,
    &x9_rcu_grace_period::RULE,
    &x11_file_access_agent::RULE,
    &x12_audit_queue::RULE,
    &x13_unkillable::RULE,
];

/// The rule with this id, in whatever case it was typed.
#[must_use]
pub fn by_id(id: &str) -> Option<&'static Rule> {
    ALL.iter().copied().find(|rule| rule.id.eq_ignore_ascii_case(id))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Ids are unique and found; every page says something everywhere.
    #[test]
    fn the_catalogue_is_whole() {
        let ids: HashSet<&str> = ALL.iter().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), ALL.len());
        for rule in ALL {
            let page = &rule.page;
            assert!(std::ptr::eq(by_id(&rule.id.to_lowercase()).unwrap(), *rule));
            let texts = [rule.title, page.mechanism, page.versions, page.trap];
            assert!(texts.iter().all(|text| !text.is_empty()), "{}", rule.id);
            let lists = [page.symptoms, page.evidence, page.next, page.sources];
            assert!(lists.iter().all(|list| !list.is_empty()), "{}", rule.id);
        }
        assert!(by_id("Z9").is_none());
    }
}
