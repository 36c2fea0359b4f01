"""The shape of a sentence of the cloud: known words stay, everything else becomes a placeholder."""

import re

TOKENS_MAX = 80
#: Not the apostrophe of a word.
QUOTED = re.compile(r"(?<![A-Za-z0-9])(?:\"([^\"]*)\"|'([^']*)')(?![A-Za-z0-9])")
URL = re.compile(r"[a-z]{2,8}://[^\s)\]\"']+")
ERROR_ID = re.compile(r"\[EID: [^\]]*\]")
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?%?")
EDGES = "()[]{}<>,.;:!?\"'`"
#: Names of Google's: states, fields of errors, types, quotas and places.
CODE = re.compile(
    r"(CREATING|READY|RESTARTING|REIMAGING|DELETING|REPAIRING|STOPPED|STOPPING|STARTING|PREEMPTED"
    r"|TERMINATED|HIDING|HIDDEN|UNHIDING|UNKNOWN|ACCEPTED|PROVISIONING|FAILED|ACTIVE|SUSPENDING"
    r"|SUSPENDED|WAITING_FOR_RESOURCES|FLEX_START|STANDARD|SPOT|RESERVATION_BOUND"
    r"|TYPE_(STRING|BOOL|INT32|INT64|UINT64)|TPU[A-Za-z0-9]{1,60}ForTPUAPI"
    r"|v\d[a-z]?(lite|litepod|lite_pod)?(-\d{1,6})?"
    r"|(us|europe|asia|australia|me|northamerica|southamerica)-[a-z]{4,9}\d{1,2}(-[a-z])?"
    r"|(tpu|storage|compute|iam)\.[a-zA-Z]{1,30}\.[a-zA-Z]{1,30}|[a-z]{3,12}\.googleapis\.com)"
)
#: The words of the cloud's sentences. A word that is not here is not kept.
VOCABULARY = frozenset(
    """
    a able aborted accelerator access account accounts accepted active actor add address addresses
    administrator after again all allowed already also an and another any api apis are argument as
    at attached authentication available bad be because been before being below billing body boot
    bound bucket but by call called caller can cannot can't capacity changed client cloud cloudtpu
    code completed condition configuration configurations conflict constraint constraints consumer
    contact contains could count create created credential credentials current customer data
    deadline default delete deleted denied description detail details did different disabled disk
    disks does doesn't done due duration each empty enable enabled encountered entity error event
    exceeded exceed exhausted exist existing exists expected expired external failed few field
    fields fingerprint firewall first for force found free from generation get given guaranteed had
    has have health healthy host hosts http id if in insert insufficient interconnect internal into
    invalid is it its json key keys label labels large later legacy length less limit limits list
    listed location locations login longer machine maintenance malformed manager match maximum may
    message metadata method metric migrate minute minutes missing more moved multiple must name
    names need needs network networks new no node nodes non-existent none not now null number
    oauth object occurred of off offered on once only operation operations or order org
    organization other out over page parameter parent payload per permission permissions please
    point policy pool port precondition preempted preemptible present profile project projects
    provided provision provisioned provisioning proto quota quotas queue queued range rate re-enable
    read ready reason received recently refused region regional regions rejected removed
    repeating request requested requests required requires reservation reserved reset resource
    resources response retry role root running runtime same satisfied scheduled scope see send
    serve server service serviceaccount services set should size slice slices smaller software
    specified spot ssh start started state stop stopped storage string subnet subnetwork such
    support supported suspended syntax system tag tags take temporarily than that the their them
    then there these this time times to token too topology tpu try type types unable unauthenticated
    unavailable under undefined unexpected unhealthy unknown unsupported until update updated
    updating upgrade use used user users using valid valid-until value values version versions vm
    wait waiting was well when where which while will with within worker workers write wrong yet you
    your zonal zone zones
    """.split()
)


def message_shape(message: str) -> str:
    """Return the sentence with placeholders for all that is not a known word."""
    text = ERROR_ID.sub("[EID: <id>]", message)
    text = URL.sub("<url>", text)
    text = QUOTED.sub(shape_quoted, text)
    words = text.split()
    shown = [shape_token(word) for word in words[:TOKENS_MAX]]
    return " ".join([*shown, "<more>"] if len(words) > TOKENS_MAX else shown)


def shape_quoted(found: re.Match[str]) -> str:
    """Return what was between quotes: a name of Google's, or a placeholder."""
    inner = found[1] if found[1] is not None else found[2]
    mark = found[0][0]
    return f"{mark}{inner if CODE.fullmatch(inner) else '<name>'}{mark}"


def shape_token(token: str) -> str:
    """Return a word with its punctuation, or a placeholder with it."""
    if token in ("[EID:", "<id>]") or "<name>" in token or "<url>" in token:
        return placeholder_token(token)
    core = token.strip(EDGES)
    if not core:
        return token if set(token) <= set(EDGES) and len(token) <= 2 else "<word>"
    start = token.index(core)
    head, tail = token[:start], token[start + len(core) :]
    if core.lower() in VOCABULARY or CODE.fullmatch(core):
        return token
    return f"{head}{'<number>' if NUMBER.fullmatch(core) else '<word>'}{tail}"


def placeholder_token(token: str) -> str:
    """Return a token that has a placeholder already, without whatever else is attached to it."""
    for part in ("<name>", "<url>"):
        if part in token:
            head, _, tail = token.partition(part)
            outside = (head + tail).strip(EDGES)
            return token if not outside else part
    return token
