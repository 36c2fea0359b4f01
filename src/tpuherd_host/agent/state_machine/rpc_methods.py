"""The protocol's reference: the agent's verbs and their arguments.

A CALL is a JSON object with "verb" and the arguments below; those with a default (after =) are
optional. The answer is one REPLY or FAIL {"error", "sentence"}. Errors: "unknown" (no such verb
or task), "unfit" (arguments), "taken" (the id is in use), "busy", "outdated" (an engine with a
higher epoch is active), "dropped" (see streams), "cancelled", "full", "broken".
After a protocol error comes FAIL with id 0 and "protocol", and the connection is closed.

Greeting, HELLO each way, id 0:
  agent       {"protocol","agent","python","host","boot","user","home","pid","zlib",
              "epoch": highest known,"time"}
  controller  {"protocol","who","owner","epoch": 0 for commands}

WORK, a task in replies, lists and events:
  {"id","kind":"command|attempt|setup","phase","title","who","owner","pid":n|null,"asked","started",
   "ended","exit":n|null,"signal":n|null,"rusage":{"user_s","system_s","memory_bytes"},"why",
   "code","first","length","logged": when the log last grew,"lost_bytes","terminal":bool,
   "stdin":bool}
  phase: waiting starting running sweeping freeing closing, then ended or lost (end not seen, see
  "why"). code: "cleaned" if a user's `clean` ended it, "unborn" if the host could not begin it,
  else "". exit 127 not found, 126 not executable, 125 no such directory or a full disk; with
  "signal" herd exits with 128+n. Attempts and setups also have:
  {"slot","number","stage","stages","stage_name","lease_until","deadman","stopped": it was stopped
   before it ended by itself,"report","tail":[last lines],"free":bool|null,"holders":[…]}

Streams (run, attach, follow): DATA on port 3 (LOG) is the task's log from the offset "from", split
anywhere; log_records.py parses it. With a terminal it is port 1 (STDOUT), raw, and offsets count
raw bytes. A record JUMP says that older records were dropped; if this happens within a stream,
the call ends with FAIL "dropped": ask again from the same offset to get the JUMP. REPLY comes when
the task is over and its whole log was sent. CANCEL or a lost connection ends the stream, never the
task. Standard input: DATA on port 0, then END on port 0; a lost connection does not end it
(`close_stdin` does).

Commands
  ping     {} → {"time"}
  run      {"id","argv":[…] | "shell":text,"env"={},"directory"=null,"stdin"=false,"terminal"=null |
           {"rows","columns","term"},"keep_s"=86400,"from"=0,"hold"=true,"log_bytes"=256 MiB}
           → stream, then WORK. It runs in "directory", relative to the login's home; with "code"=
           "herd/gpt" in that folder, and with the environment of that job's last attempt, where the
           host has them (base_folder.py).
           Repeating it with the same id and arguments only follows it. "hold": the command's
           output waits while this reader is half of log_bytes behind and has read in 60 s.
           "preload"=true: keep the host's LD_PRELOAD. The login's shell runs "shell"; that of start
           and setup is run by bash, or by sh where there is none.
  attach   {"id","from"=0,"stdin"=false,"hold"=true} → stream, then WORK. The last caller
           with stdin provides the input.
  commands {"id"=null: all} → {"commands":[WORK]}
  signal   {"id","signal"=15,"whole"=false} → WORK. whole: to all its processes.
  stop     {"id","grace_s"=10,"why"=""} → WORK at its end: TERM, grace, KILL, to all its processes.
  resize   {"id","rows","columns"} → {}
  close_stdin {"id"} → {}
  forget   {"id"} → {}; "busy" while it runs

Attempts. start, halt and lease need an epoch in the hello, at least the owner's
highest so far.
  start    {"attempt","slot","number","argv" | "shell","env"={},"directory"=null,"setup"=[STEP],
           "grace_s"=30,"notice_grace_s"=25,"lease_s"=null,"log_bytes"=1 GiB,"keep_s"=14 days,
           "hold_s"=0}
           → WORK + {"again":bool}. Never started twice; "busy" while another of its slot is live.
           Its processes have HERD_WORK (its id) and HERD_STEPS (step_reports.py).
  attempts {} → {"attempts":[WORK],"notices":{key: value},"pauses":[{"ago_s","s"}]}; setups that
           run are included; `pauses` are times in which the agent itself stood still. The list is
           complete: other attempts of this owner do not run here. A starting agent stops tasks
           without a record (grace 30 s) and reports them as "lost".
  follow   {"attempt","from"=0} → stream, then WORK
  halt     {"attempt","grace_s","why"} → WORK at its end, with "free" and "holders" of the chips:
           TERM to the leader; to the rest when it is gone or the grace is over; KILL at the end of
           the grace; then up to 30 s until the chips are free. {"phase":"absent"}: never seen.
  lease    {"seconds"=as before,"attempt"=all of this owner} → {"leases":{attempt: until}}. At the
           end of a lease the attempt is stopped, "deadman" is true, and the event deadman is sent.
  stacks   {"attempt"} → {"processes":[{"pid","command","text"}],"more": how many are omitted}:
           the stacks from py-spy or the process itself, else from /proc

Setup
  setup    {"id","slot"="","steps":[STEP],"secrets"={}} → WORK at its end. Follow it with `attach`.
           If another setup of this owner runs, it is stopped and its WORK is the answer: ask
           again. A failed step ends it: see "stage", "stage_name", "exit" and "tail". "taken":
           the id belongs to other steps. "secrets" are variables of all steps; other values do
           not make it another setup. STEP: {"name","argv" | "shell","env","directory","hash"="",
           "delay_s"=0,"environment"=""}: skipped if its hash was stamped on this host;
           "delay_s" is the caller's jitter. Steps run without the host's LD_PRELOAD.

           In argv, "$AGENT" is the agent's own file. "environment", also of run and start: the
           key of the Python environment that the process uses, or "current".

  trial.keep {"dest"} → {"refused": why, if that does not fit on the disk}: before the first trial,
           copy what the setup made in the folder "dest" (trial_base.py)
  trial.begin {"dest","slot","trial"="": none,"safe"=""} → {"moved": n,"trial": whose,"folder":
           where}: before an attempt of another trial, put the folder back as the setup left it:
           what the last one wrote is moved aside, or removed if it is "safe" (trial_files.py).
           Then bring back what this one wrote earlier. "busy" while an attempt runs

Environments of Python packages; installed by `agent.pyz environment RECIPE` (installation.py)
  environment.look {"key"} → {"platform","snapshot": id | null,"placed": in its folder,"uv": path |
           null}; if it was installed on this host, also "tool","python","packages","size",
           "seconds","kept": its copy in a bucket,"source": the copy that it was fetched from,
           "refused": why such a copy was not used
  environment.use  {"key"} → {"python","removed":[keys]}: make one that has arrived work here, let
           `current` lead to it, and remove all but the three that were used last

Checkpoints
  checkpoint.fetch {"env": the attempt's variables} → {"step": n|null,"bytes","programs","trouble"}:
           copy what its process will load to the host's disk (train/fetch_ahead.py). It may be
           repeated; a second one at the same time does nothing.
  image.look {"image"} → {"engine": docker|podman|"","trouble","id": "" if it is not on this host}

Host
  facts    {} → {"boot","host","kernel","machine","python","executable","uptime_s","time","cores",
           "load":[…],"memory":{"total","available"},"disk":{"total","free","files_free"},"shm":the
           same|null,"chips":[{"place","device","generation"}],"devices":[paths],"hugepages",
           "preload","tools":{name: path|null}}
  holders  {} → {"holders":[{"device","pid":n|null,"user","command","since","work","ours":bool}],
           "devices":[…]}; pid null: a lock whose holder is hidden
  usage    {} → {"over_s","cpu_percent":n|null,"net_in":bytes a second|null,"net_out":same,
           "metrics":[{"port","pid":n|null}]} with "time","cores","load","memory","disk","chips" of
           facts, and all of holders: rates since an earlier call, or over a moment; "metrics":
           who serves libtpu's values. Hidden users of chips are looked for if a chip seems free.
  clean    {"all"=false,"grace_s"=10} → {"ended":[{"pid","command","work","user"}],"left":[same],
           "removed":[lock files],"mended":[folders],"holders":[…]}. Only leftovers of earlier
           tasks; with all: also live tasks, and all processes on the chips.
  chips.free {} → {"ended":[what it ended],"held": who else uses the chips, a sentence; "" if
           they are free}: before an attempt, ends what tasks that are over left on the chips
  check    {"ports"=[…],"pythons"=[paths]} → what `herd check` judges (check_facts.py): {"host": as
           facts,"disks","locks","leftovers","holders": with "parent","tasks","ports","load",
           "settings","wandb","pythons","identity","apt","logs","failed":{section: why}}. It changes
           nothing. "ports": whose listeners to look for; "pythons": to look at before the usual
           ones.

Snapshots and copies. `have` sends an order with a token, by which the other verbs refer to it.
Replies of receive and relay: {"ready": id | null,"why","lost":[tokens of children]}. CHILDREN:
[[address, port, token, CHILDREN], …]. "switch": no other host is involved, so commit as soon as
everything is received; the reply includes that of commit.
  snapshot.have     {"token","id","dest","force"=false,"tops": a copy's top-level names =null,
                    "address": to listen at =null} → {"dest","port": n, where it listens}; for a
                    snapshot also {"intact":bool,"whole":[ids],"held": bits of its contents, base64
                    | null}. With {"base": the prefix of an id,"switch"=false} and on port 4 the
                    stream from that snapshot to this: a host that has it in place receives it
                    at once and replies as to receive.
  snapshot.receive  {"token","children":CHILDREN,"switch"=false}, the stream (stream.py)
                    on port 4: receive it and pass it on. Like relay, it sends "." on port 1
                    while it works.
  snapshot.relay    {"token"}: receive from the host that connects to the port from `have`
  snapshot.pass     {"token","children":CHILDREN} → {"lost"}: pass on a complete snapshot
  snapshot.commit   {"token"} → {"switched": id,"was": id | null,"stays":[paths kept aside]}
  snapshot.abandon  {"token"} → {"stands": whether it is in place anyway}
  snapshot.give     {"id","rows_only"=false} → {}, the stream on port 4; "not-found" if it is not
                    complete here
  give              {"paths":[…]} → {"skipped":[…]}, the stream on port 4; its head has "tops"

Events (EVENT, id 0), with "event" and:
  notice    {"what":"preempted|maintenance-event|shutdown","value","deadly":bool,"time"}
  ended     {"time", WORK}; an attempt or setup is over      gap {"work","lost","why"}: disk full
  deadman   {"attempt","wanted":"delete","why"}              missed {"many"}: you were too slow
  to engines only (epoch > 0): attempt {"time", WORK} · step {"attempt","time","report":{…}} ·
  heartbeat {"time","attempts":[{"id","phase","stage","length","report"}],
            "used": whether a user's command runs, "pauses"} every 10 s ·
  used {"time"}: a user's command has started ·
  sample {"time","cpu","ram","disk","net","chips"}: what the host does, every 10 s or 60 s

To add a verb that blocks (files, network), write a function `(call: ThreadedCall) -> dict` and add
it to THREADED in threaded_methods.py. Each call runs in its own thread, reads and writes DATA with
`call`, and raises CallRefused(word, sentence) for a FAIL. `call.paths` has folder, home
and environment. The agent itself does not use SIGCHLD: subprocess works there as usual.
"""

from typing import Any, Dict, Mapping

from tpuherd_host.agent.state_machine import deadman, rpc_attempts, rpc_commands
from tpuherd_host.agent.state_machine.rpc_calls import MethodHandler
from tpuherd_host.agent.state_machine.state import Connection
from tpuherd_host.agent.state_machine.transition import Transition


def answer_ping(
    transition: Transition, one: Connection, call: int, content: Mapping[str, Any]
) -> Mapping[str, Any]:
    return {"time": transition.now}


#: Answered by the state machine itself: pure functions.
PURE: Dict[str, MethodHandler] = {
    "ping": answer_ping,
    "run": rpc_commands.run_command,
    "attach": rpc_commands.follow_task,
    "commands": rpc_commands.list_commands,
    "signal": rpc_commands.send_signal,
    "stop": rpc_commands.stop_command,
    "resize": rpc_commands.resize_terminal,
    "close_stdin": rpc_commands.end_input,
    "forget": rpc_commands.forget_command,
    "start": rpc_attempts.start_attempt,
    "attempts": rpc_attempts.list_attempts,
    "follow": rpc_commands.follow_task,
    "halt": rpc_attempts.halt_attempt,
    "lease": deadman.renew_leases,
    "setup": rpc_attempts.run_setup,
}
