"""Which tests are too long for `make test`, and which for `.ci/run`.

A row is a file below tests/, one test of it, or one case of a test. `.ci/run` and `make test-long`
run what LONG lists; `make test-real` runs what REAL lists and what is marked `heavy`.
`pytest --durations=50` shows what belongs in LONG: what takes more than a few seconds by itself
and whose law a shorter test guards too, or a second case of a test whose first case stays. What
belongs in REAL takes a good part of a minute, and a test that `.ci/run` keeps guards its law.
"""

LONG = (
    "conformance/test_agent_over_ssh.py::test_a_reboot_ends_a_command_and_says_so[sim]",
    "conformance/test_agent_over_ssh.py::test_a_running_agent_is_reached_through_its_socket",
    "conformance/test_routes.py::test_a_refusing_host_and_a_silent_host",
    "conformance/test_routes.py::test_unreachable_hosts_do_not_delay_the_others",
    "conformance/test_store_damage.py::test_kill_9_while_a_damaged_store_is_moved_loses_nothing",
    "integration/test_buckets.py::test_a_bucket_from_nothing_to_a_write_and_a_read_on_hosts",
    "integration/test_buckets.py::test_a_run_far_from_its_data_is_refused_and_nothing_is_stored",
    "integration/test_canary.py",
    "integration/test_check.py::test_a_target_that_does_not_exist_or_can_not_be_reached",
    "integration/test_check.py::test_what_the_project_lacks_is_found_and_setup_mends_it",
    "integration/test_check_hosts.py",
    "integration/test_clients_as_is.py::test_googles_libraries_over_tls",
    "integration/test_clients_gcloud.py",
    "integration/test_clients_gcloud_hosts.py",
    "integration/test_clients_tpu_info.py",
    "integration/test_daemon.py::test_a_failing_command_affects_no_other",
    "integration/test_daemon.py::test_another_version_replaces_an_idle_daemon",
    "integration/test_daemon.py::test_commands_run_where_no_daemon_can",
    "integration/test_daemon.py::test_no_other_user_can_connect",
    "integration/test_daemon.py::test_the_daemon_ends_when_its_folder_is_gone",
    "integration/test_docs_pages.py",
    "integration/test_docs_run.py",
    "integration/test_engine_full_disk.py",
    "integration/test_engine_life.py::test_a_failing_setup_is_reported_with_its_host_and_last_lines",
    "integration/test_engine_life.py::test_a_lost_store_is_rebuilt_from_the_cloud",
    "integration/test_engine_life.py::test_a_running_setup_is_shown_and_can_be_replaced",
    "integration/test_engine_life.py::test_an_attempt_outlives_its_engine_and_is_not_started_again",
    "integration/test_engine_life.py::test_an_engine_is_killed_again_and_again",
    "integration/test_engine_life.py::test_outputs_are_collected_before_the_node_goes",
    "integration/test_engine_life.py::test_secrets_reach_setup_and_command_and_no_log",
    "integration/test_engine_life.py::test_term_ends_the_engine_at_once_and_nothing_else",
    "integration/test_engine_life.py::test_the_stacks_of_a_hanging_command_are_saved",
    "integration/test_engine_status.py",
    "integration/test_engine_without_world.py",
    "integration/test_environment_life.py",
    "integration/test_exec_commands.py::test_a_dead_host_is_named_and_stops_no_other",
    "integration/test_exec_commands.py::test_a_flood_and_lines_of_a_megabyte",
    "integration/test_exec_commands.py::test_a_slow_reader_slows_no_other_host",
    "integration/test_exec_terminal.py::test_ctrl_c_can_detach_and_the_rest_is_seen_later",
    "integration/test_exec_terminal.py::test_ctrl_c_without_an_answer_keeps_it_running",
    "integration/test_explain_life.py",
    "integration/test_files_and_logs.py::test_a_job_without_a_node_is_known",
    "integration/test_host_isolation.py::test_killing_the_world_leaves_nothing[namespaces-user]",
    "integration/test_host_isolation.py::test_nodes_do_not_reach_each_other[namespaces-user]",
    "integration/test_host_isolation.py::test_removing_everything_removes_only_the_host[namespaces-user]",
    "integration/test_host_isolation.py::test_users_and_processes_of_the_machine_are_invisible[namespaces-user]",
    "integration/test_host_isolation_unprivileged.py",
    "integration/test_host_pool.py::test_the_best_mode_is_used_and_missing_features_are_named",
    "integration/test_host_ssh_sessions.py::test_weather_and_dead_hosts[namespaces-user]",
    "integration/test_jax_pods.py",
    "integration/test_jobs_life.py",
    "integration/test_levanter.py::test_a_babysat_run_keeps_its_id_and_its_nodes_name",
    "integration/test_levanter.py::test_a_node_of_another_owner_is_refused_by_name",
    "integration/test_macos_types.py",
    "integration/test_map_life.py",
    "integration/test_nfs.py",
    "integration/test_notify_life.py",
    "integration/test_open.py",
    "integration/test_page_life.py",
    "integration/test_profile_life.py",
    "integration/test_seeds_gcloud.py",
    "integration/test_servers.py",
    "integration/test_setup_command.py::test_a_killed_command_leaves_its_record_and_a_second_run_completes",
    "integration/test_setup_command.py::test_a_refusal_in_the_middle_says_what_to_do",
    "integration/test_setup_command.py::test_the_whole_internet_is_asked_for_twice",
    "integration/test_ssh_config.py::test_a_name_leads_to_the_next_node_and_says_what_is_wrong_until_then",
    "integration/test_store_damaged.py",
    "integration/test_store_lost.py",
    "integration/test_sweep_life.py",
    "integration/test_sync_hosts.py::test_a_slow_uplink_carries_the_code_once_for_any_number_of_hosts[sshd]",
    "integration/test_sync_hosts.py::test_an_interrupted_transfer_keeps_the_old_code_and_the_next_try_resumes[sim-cut]",
    "integration/test_sync_hosts.py::test_an_interrupted_transfer_keeps_the_old_code_and_the_next_try_resumes[sim-kill]",
    "integration/test_sync_hosts.py::test_an_interrupted_transfer_keeps_the_old_code_and_the_next_try_resumes[sshd-cut]",
    "integration/test_sync_hosts.py::test_first_edited_and_unchanged_code[sshd]",
    "integration/test_sync_hosts.py::test_two_unconnected_nodes[sim]",
    "integration/test_tpucare.py",
    "integration/test_train_checkpoints.py::test_an_impossible_partial_load_is_refused",
    "integration/test_train_checkpoints.py::test_only_what_fits_is_loaded_and_every_other_array_is_named",
    "integration/test_train_checkpoints.py::test_trials_of_a_job_compile_its_programs_once",
    "integration/test_train_formats.py",
    "integration/test_train_interruptions.py",
    "integration/test_train_loops.py",
    "integration/test_train_pods.py",
    "integration/test_train_refusals.py::test_a_bucket_outage_is_retried",
    "integration/test_train_refusals.py::test_data_that_cannot_be_shared",
    "integration/test_train_workers.py",
    "integration/test_trials.py",
    "integration/test_two_users.py",
    "integration/test_via.py",
    "integration/test_world_hosts.py::test_a_preempted_node_loses_its_host",
    "integration/test_world_hosts.py::test_every_reset_request_returns",
    "page/test_charts.py",
    "page/test_job_pages.py",
    "page/test_pages.py",
    "page/test_real_page.py",
    "simulated/test_accounting_truth.py::test_the_account_matches_when_the_host_stops_it_after_days_alone",
    "simulated/test_engine_incidents.py::test_known_incidents_end_well[ramp]",
    "simulated/test_engine_recovery.py::test_an_engine_that_was_away_finds_everything_unchanged[86400.0]",
    "simulated/test_engine_storm.py::test_after_a_storm_all_jobs_are_as_submitted[5]",
    "simulated/test_environments.py::test_a_bucket_keeps_it_for_a_new_node",
    "simulated/test_environments.py::test_a_host_keeps_the_three_used_last",
    "simulated/test_environments.py::test_without_a_copy_anywhere_it_is_installed_again",
    "simulated/test_environments.py::test_without_uv_the_host_uses_pip",
    "simulated/test_report_predictions.py",
    "simulated/test_snapshot_git_index.py::test_no_snapshot_is_wrong_whatever_happens_to_the_repository[1]",
    "unit/test_examples.py::test_every_file_is_packed_once_whatever_dies",
    "unit/test_python_api.py::test_a_type_checker_accepts_correct_use",
    "unit/test_python_api.py::test_a_type_checker_finds_misspellings",
)

REAL = (
    "integration/test_clients_gcloud.py::test_alpha_and_maintenance",
    "integration/test_clients_gcloud.py::test_types_and_runtimes",
    "integration/test_clients_tpu_info.py::test_the_tables[v2-8-8-/dev/accel0]",
    "integration/test_engine_life.py::test_an_attempt_outlives_its_engine_and_is_not_started_again",
    "integration/test_environment_life.py::test_an_impossible_installation_ends_the_job_with_a_sentence",
    "integration/test_environment_life.py::test_without_an_environment_exec_says_so",
    "integration/test_exec_commands.py::test_a_flood_and_lines_of_a_megabyte",
    "integration/test_explain_life.py::test_the_host_with_the_cause_is_named_among_four",
    "integration/test_host_isolation_unprivileged.py",
    "integration/test_jobs_life.py::test_a_lost_store_is_adopted_and_orphans_are_shown",
    "integration/test_jobs_life.py::test_following_shows_the_log_and_returns_the_exit_status[3-0]",
    "integration/test_jobs_life.py::test_several_tiers_are_separated_by_commas_and_slices_are_shown",
    "integration/test_jobs_life.py::test_without_a_terminal_run_says_that_it_detached_and_how_to_wait",
    "integration/test_levanter.py::test_a_node_of_another_owner_is_refused_by_name",
    "integration/test_map_life.py::test_from_python",
    "integration/test_map_life.py::test_items_run_on_nodes_that_stay",
    "integration/test_profile_life.py::test_without_an_attempt_there_is_nothing_to_see",
    "integration/test_store_damaged.py::test_jobs_continue_and_every_reading_command_reports_it_until_acknowledged[False]",
    "integration/test_store_damaged.py::test_lost_jobs_are_read_from_the_cloud_again",
    "integration/test_store_lost.py::test_the_same_code_runs_on_a_new_node_after_everything_was_lost",
    "integration/test_tpucare.py::test_a_swarm_takes_over_the_tpus_that_live",
    "integration/test_tpucare.py::test_the_pod_example_continues_at_the_checkpoint_that_wandb_knows",
    "integration/test_train_formats.py::test_types_damage_and_commits_on_several_hosts[pieces-folder]",
    "integration/test_train_loops.py::test_a_host_that_leaves_by_an_exception_saves_nothing",
    "integration/test_train_pods.py::test_bad_input_is_one_sentence_on_one_host",
    "integration/test_train_pods.py::test_the_failing_host_keeps_its_status[pieces]",
    "integration/test_via.py::test_a_map_takes_its_items_along",
    "integration/test_via.py::test_names_for_ssh_are_those_of_existing_nodes",
    "integration/test_via.py::test_signals_and_exit_statuses_pass_through",
    "page/test_pages.py::test_a_page_shows_its_data_and_axe_finds_nothing[capacity]",
    "page/test_pages.py::test_a_page_shows_its_data_and_axe_finds_nothing[cost]",
    "page/test_real_page.py",
    "simulated/test_accounting_truth.py::test_the_account_matches_when_the_host_stops_it_after_days_alone",
    "simulated/test_engine_recovery.py::test_an_engine_that_was_away_finds_everything_unchanged[86400.0]",
    "simulated/test_environments.py::test_without_uv_the_host_uses_pip",
    "simulated/test_report_predictions.py",
)

#: Folders whose files begin first: what waits for processes longest must not come last.
FIRST = ("integration", "conformance", "simulated", "unit")


def is_listed(test: str, rows: tuple[str, ...]) -> bool:
    """Whether these rows list a test, by its id."""
    case = test.removeprefix("tests/")
    name = case.partition("[")[0]
    return any(row in rows for row in (case, name, name.partition("::")[0]))


def start_order(test: str) -> tuple[int, bool]:
    """Return when a test's file begins, by the test's id: the lowest first.

    Within a folder, files with long tests begin before the others.
    """
    file = test.removeprefix("tests/").partition("::")[0]
    folder = file.partition("/")[0]
    rank = FIRST.index(folder) if folder in FIRST else len(FIRST)
    return rank, not any(name.startswith(file) for name in LONG)
