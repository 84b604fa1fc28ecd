"""Tokens of command sessions: replayed, forged, carried elsewhere, leaked."""

import base64
import time

from framework import attack


def attach(api, path, token, timeout=6):
    """The status of an attach, and what it brought."""
    connection = api.connection(timeout)
    try:
        connection.request("GET", path + "/attach", headers={"Authorization": f"Bearer {token}", "Accept": "text/event-stream"})
        response = connection.getresponse()
        return response.status, response.read(2000) if response.status != 200 else b""
    except OSError as error:
        return 0, repr(error).encode()
    finally:
        connection.close()


@attack("H06", "E24", "H19")
def replay(t):
    """A token used for another session, another sandbox, after the end, after a renewal, after the deletion"""
    box, api = t.world.sandbox(), t.world.attacker
    one, two = box.start(["sleep", "30"]), box.start(["sleep", "30"])
    t.control("a token opens its own session", attach(api, one.path, one.token)[0] == 200)
    t.attempt("a token opens another session", attach(api, two.path, one.token)[0] == 200)
    theirs = t.world.bystander.start(["cat", "/root/canary"], user="root")
    for token in (one.token, two.token, t.world.attacker.key):
        t.attempt("a token opens another tenant's session", attach(api, theirs.path, token)[0] == 200)
    for call, body in (("stdin", b"x"), ("signal", b'{"signal":"KILL"}'), ("resize", b'{"rows":1,"cols":1}')):
        answer = api.with_key(one.token).call("POST", f"{theirs.path}/{call}", body, {"Content-Type": "application/json" if call != "stdin" else "application/octet-stream"})
        t.attempt(f"a token of ours does {call} there", answer.status < 400, answer.status)
    for path in (box.path, box.path + "/commands", "/v1/keys", "/v1/sandboxes", box.files("content", "/etc/hostname")):
        t.attempt(f"a token reads {path}", api.with_key(one.token).call("GET", path).status == 200)
    gone = t.world.fresh()
    last = gone.start(["sleep", "30"])
    t.world.drop(gone)
    t.attempt("a token outlives its sandbox", attach(api, last.path, last.token)[0] == 200)
    again = t.world.fresh()
    t.attempt("an id was given out twice", again.id == gone.id)
    t.attempt("an old token opens a new sandbox", attach(api, last.path.replace(gone.id, again.id), last.token)[0] == 200)
    t.world.drop(again)
    one.kill(), two.kill()
    time.sleep(0.2)


@attack("H07", quick=True)
def forged(t):
    """Tokens that were altered, cut, put together, or claim an algorithm"""
    box, api = t.world.sandbox(), t.world.attacker
    command = box.start(["sleep", "30"])
    token = command.token
    t.control("the token as it was given opens", attach(api, command.path, token)[0] == 200)
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=") + "." + base64.urlsafe_b64encode(f'{{"session":"{command.session}","tenant":"victim"}}'.encode()).decode().rstrip("=") + "."
    for what, forged in {"one bit": token[:-1] + ("A" if token[-1] != "A" else "B"), "cut": token[:-4], "longer": token + "A", "upper": token.upper(), "prefix alone": "at_", "empty mac": "at_" + "A" * (len(token) - 3),
                         "alg none": none, "with a path": "../../" + token, "twice": token + token, "with a space": token + " x", "of another form": "tt_" + token[3:]}.items():
        t.attempt(f"token {what}", attach(api, command.path, forged)[0] == 200)
    others = {box.start(["true"]).token for _ in range(5)}
    t.attempt("tokens repeat", len(others) != 5)
    t.attempt("tokens have fewer than 128 bits", min(len(one) - 3 for one in others) * 6 < 128)
    command.kill()


@attack("H09", "E19", "E20", quick=True)
def leaks_of_secrets(t):
    """Keys, tokens and values of the environment in the log, in lists, in errors, in arguments of processes"""
    box, api = t.world.sandbox(), t.world.attacker
    command = box.start(["true"], env={"PRIVATE": "env-canary-7f31"})
    attach(api, command.path, command.token)
    api.call("GET", f"/v1/sandboxes?key={api.key}")
    api.with_key("sk_" + "Z" * 43).call("GET", "/v1/sandboxes")
    log = t.world.log_text()
    t.control("the log names the requests", command.session in log)
    first = (t.world.server.data_dir / "first.key").read_text().strip()
    for what, secret in (("a token", command.token), ("the key", api.key), ("the first key", first), ("an unknown key", "Z" * 43), ("a value of the environment", "env-canary-7f31")):
        t.attempt(f"{what} is in the log", secret in log)
    bodies = b"".join(api.call("GET", path).body for path in ("/v1/sandboxes", "/v1/operations", "/v1/keys", box.path, box.path + "/commands")) + t.world.host.call("GET", "/metrics").body
    for secret in (command.token, api.key, first):
        t.attempt("a secret is in a list", secret.encode() in bodies)
    for role, pid in t.world.role_pids().items():
        with open(f"/proc/{pid}/cmdline", "rb") as words, open(f"/proc/{pid}/environ", "rb") as environ:
            content = words.read() + environ.read()
        t.attempt(f"a secret is in the arguments of {role}", any(secret.encode() in content for secret in (api.key, first, command.token)))
    seen = t.guest(box, "cat /proc/*/environ /proc/cmdline 2>/dev/null | tr '\\0' '\\n'").stdout
    t.attempt("the guest holds a key of the API", api.key.encode() in seen or first.encode() in seen)
