"""The agent's verbs and their arguments: the reference of the protocol.

A CALL is a JSON object with "verb" and the arguments below; those with a default (after =) are
optional. It is answered by one REPLY, or FAIL {"error", "sentence"}. Errors: "unknown" (no such
verb or task), "unfit" (arguments), "taken" (that id is something else), "busy", "outdated" (an
engine with a higher epoch leads), "dropped" (see streams), "cancelled", "full", "broken".
A protocol error is FAIL with id 0 and "protocol", and the connection is closed.

Greeting, HELLO each way, id 0:
  agent       {"protocol","agent","python","host","boot","user","home","pid","zlib",
              "epoch": highest known,"time"}
  controller  {"protocol","who","owner","epoch": 0 for commands}

WORK, a task in replies, lists and events:
  {"id","kind":"command|attempt|setup","phase","title","who","owner","pid":n|null,"asked","started",
   "ended","exit":n|null,"signal":n|null,"rusage":{"user_s","system_s","memory_bytes"},"why",
   "first","length","logged": when the log grew last,"lost_bytes","terminal":bool,"stdin":bool}
  phase: waiting starting running sweeping freeing closing, then ended or lost (nobody saw its end:
  see "why"). exit 127 not found, 126 not executable, 125 no such directory or no room; with
  "signal" herd exits 128+n. Attempts and setups also have:
  {"slot","number","stage","stages","stage_name","lease_until","deadman","stopped": before it ended
   by itself,"report","tail":[last lines],"free":bool|null,"holders":[…]}

Streams (run, attach, follow): DATA on port 3 (LOG) is the task's log from the offset "from", cut
anywhere: log_records.py parses it. With a terminal it is port 1 (STDOUT), raw, and offsets count
raw bytes. A record JUMP says that older ones were dropped; if that happens within a stream, the
call ends by FAIL "dropped": ask again from the same offset to get the JUMP. REPLY comes when the
task is over and all of its log was sent. CANCEL or a cut ends the stream, never the task. Standard
input: DATA on port 0, END on port 0 at its end; a cut does not end it (`close_stdin` does).

Commands
  ping     {} → {"time"}
  run      {"id","argv":[…] | "shell":text,"env"={},"directory"=null,"stdin"=false,"terminal"=null |
           {"rows","columns","term"},"keep_s"=86400,"from"=0,"hold"=true,"log_bytes"=256 MiB}
           → stream, then WORK. In the login's home, or there; "~" and relative paths are from it.
           The same id with the same arguments again only follows it. "hold": the command's output
           waits while this reader is half of log_bytes behind, and has read something in 60 s.
           "preload"=true: keep the host's LD_PRELOAD.
  attach   {"id","from"=0,"stdin"=false,"hold"=true} → stream, then WORK. The last with stdin feeds.
  commands {} → {"commands":[WORK]}
  signal   {"id","signal"=15,"whole"=false} → WORK. whole: to every process of it.
  stop     {"id","grace_s"=10,"why"=""} → WORK at its end: TERM, grace, KILL, to every process.
  resize   {"id","rows","columns"} → {}
  close_stdin {"id"} → {}
  forget   {"id"} → {}; "busy" while it runs

Attempts. start, halt and lease want an epoch in the hello, not below any that the owner had.
  start    {"attempt","slot","number","argv" | "shell","env"={},"directory"=null,"setup"=[STEP],
           "grace_s"=30,"notice_grace_s"=25,"lease_s"=null,"log_bytes"=1 GiB,"keep_s"=14 days}
           → WORK + {"again":bool}. Not started twice; "busy" while another of the slot is live.
           Its processes have HERD_WORK (its id) and HERD_STEPS (step_reports.py).
  attempts {} → {"attempts":[WORK],"notices":{key: value}}; setups that run are among them. It is
           complete: attempts of this owner that are not in it do not run here. A starting agent
           stops tasks without a record (grace 30 s) and reports them as "lost".
  follow   {"attempt","from"=0} → stream, then WORK
  halt     {"attempt","grace_s","why"} → WORK at its end, with "free" and "holders" of the chips:
           TERM to the leader, when it is gone or the grace is over to the rest, KILL at the end of
           the grace, then up to 30 s until the chips are free. {"phase":"absent"}: never seen.
  lease    {"seconds"=as before,"attempt"=all of this owner} → {"leases":{attempt: until}}. When one
           ends: the attempt is stopped, "deadman" is true, event deadman.
  stacks   {"attempt"} → {"processes":[{"pid","command","text"}],"more": so many are left out}:
           what they are doing now, by py-spy or itself, else by /proc

Setup
  setup    {"id","slot"="","steps":[STEP],"secrets"={}} → WORK at its end. Follow it by `attach`.
           Another of this owner's that runs is stopped first and its WORK is the answer: then ask
           again. A step that fails ends it: "stage", "stage_name", "exit" and "tail" tell.
           "taken": the id is of other steps. "secrets" are variables of all steps; with others it
           is the same setup. STEP: {"name","argv" | "shell","env","directory","hash"="",
           "delay_s"=0,"apt"=false}: skipped where its hash was stamped on this host; "delay_s" is
           the caller's jitter; "apt" waits for apt's locks and tries again when somebody else was
           quicker. Steps run without the host's LD_PRELOAD.

Host
  facts    {} → {"boot","host","kernel","machine","python","executable","uptime_s","time","cores",
           "load":[…],"memory":{"total","available"},"disk":{"total","free","files_free"},"shm":the
           same|null,"chips":[{"place","device","generation"}],"devices":[paths],"hugepages",
           "preload","tools":{name: path|null}}
  holders  {} → {"holders":[{"device","pid":n|null,"user","command","since","work","ours":bool}],
           "devices":[…]}; pid null: a lock whose holder cannot be seen
  clean    {"all"=false,"grace_s"=10} → {"ended":[{"pid","command","work","user"}],"left":[same],
           "removed":[lock files],"mended":[folders],"holders":[…]}. Only what earlier tasks left;
           with all: also live tasks, and all processes on the chips.

Filling. `have` tells an order and gives it a token; the other verbs name it by that. Answers of
receive and relay: {"ready": id | null,"why","lost":[tokens of children]}. CHILDREN: [[address,
port, token, CHILDREN], …]. "switch": nobody else is waited for, so commit as soon as it is filled;
the answer has what commit says, too.
  snapshot.have     {"token","id","dest","force"=false,"tops": a copy's topmost names =null,
                    "address": to listen at =null} → {"dest","port": n, where it listens}, of a
                    snapshot also {"intact":bool,"whole":[ids],"held": bits of its contents, base64
                    | null}. With {"base": how an id begins,"switch"=false} and the stream from that
                    to this on port 4: where that stands, be filled at once, and answer as receive.
  snapshot.receive  {"token","children":CHILDREN,"switch"=false}, the stream (stream.py)
                    on port 4: be filled, and pass it on. As relay, it says "." on port 1 as long as
                    it works.
  snapshot.relay    {"token"}: be filled by the host that comes to the port that `have` named
  snapshot.pass     {"token","children":CHILDREN} → {"lost"}: pass on what is here whole
  snapshot.commit   {"token"} → {"switched": id,"was": id | null,"stays":[paths kept aside]}
  snapshot.abandon  {"token"} → {"stands": whether it has its place all the same}
  snapshot.give     {"id"} → {}, the stream on port 4; "not-found" where it is not here whole
  give              {"paths":[…]} → {"skipped":[…]}, the stream on port 4; its head has "tops"

Events (EVENT, id 0), with "event" and:
  notice    {"what":"preempted|maintenance-event|shutdown","value","deadly":bool,"time"}
  ended     {"time", WORK}; an attempt or setup is over      gap {"work","lost","why"}: disk full
  deadman   {"attempt","wanted":"delete","why"}              missed {"many"}: you were too slow
  to engines only (epoch > 0): attempt {"time", WORK} · step {"attempt","time","report":{…}} ·
  heartbeat {"time","attempts":[{"id","phase","stage","length","report"}]} every 10 s

To add verbs that block (files, network), write functions `(call: ThreadedCall) -> dict` and add
them to THREADED in threaded_methods.py. Each call runs in a thread of its own, reads and writes
DATA by `call`, and raises CallRefused(word, sentence) for a FAIL. `call.paths` has folder, home
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
