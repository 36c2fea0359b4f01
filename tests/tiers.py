"""Which tests are too long for `make test`: `make test-ci` and `.ci/run` run them as well.

A row is a file below tests/, or one test of it. Tests marked `heavy` are for `make test-real` only.
`pytest --durations=50` shows what belongs here: what takes more than about ten seconds by itself
and whose law a shorter test guards too.
"""

LONG = (
    "conformance/test_hosts_ways.py::test_of_64_hosts_3_dead_ones_hold_up_nobody",
    "conformance/test_store_damage.py::test_kill_9_anywhere_while_it_is_set_aside_loses_nothing",
    "integration/test_clients_gcloud.py",
    "integration/test_clients_gcloud_hosts.py",
    "integration/test_clients_tpu_info.py",
    "integration/test_docs_run.py",
    "integration/test_engine_full_disk.py",
    "integration/test_engine_life.py::test_a_lost_store_is_rebuilt_from_what_the_cloud_has",
    "integration/test_engine_life.py::test_killed_again_and_again",
    "integration/test_engine_life.py::test_the_stacks_of_what_hangs",
    "integration/test_engine_orphans.py",
    "integration/test_engine_shown.py",
    "integration/test_exec_commands.py::test_a_flood_and_lines_of_a_megabyte",
    "integration/test_hosts_unprivileged.py",
    "integration/test_jax_pods.py",
    "integration/test_jobs_life.py::test_a_lost_store_is_adopted_and_what_is_nobodys_is_shown",
    "integration/test_jobs_life.py::test_another_owners_fleet_is_left_alone_until_it_is_adopted",
    "integration/test_jobs_life.py::test_what_commands_say_to_programs",
    "integration/test_seeds_gcloud.py",
    "integration/test_store_damaged.py",
    "integration/test_store_lost.py",
    "integration/test_sweep_life.py",
    "integration/test_train_forms.py",
    "integration/test_train_loops.py",
    "integration/test_train_pods.py",
    "integration/test_train_stories.py",
    "integration/test_train_workers.py",
    "integration/test_trials.py",
    "integration/test_two_users.py",
    "integration/test_via.py",
)


def is_long(test: str) -> bool:
    """Whether a test, by its id, is listed here."""
    name = test.removeprefix("tests/").partition("[")[0]
    return name in LONG or name.partition("::")[0] in LONG
