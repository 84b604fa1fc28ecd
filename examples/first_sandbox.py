#!/usr/bin/env python3
"""A first sandbox over HTTP, with nothing but Python's standard library.

It makes a sandbox, runs a program in it, streams what the program writes, moves a file in and out, and deletes the sandbox.

    space serve &                          # or ./run
    python3 examples/first_sandbox.py

SPACE_URL and SPACE_API_KEY (or SPACE_KEY_FILE) name the server and the key; without them it takes the server of this machine.
Every call below is one line of docs/api.md; the whole contract is in api/openapi.yaml.
"""

import base64
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request

URL = os.environ.get("SPACE_URL", "http://127.0.0.1:7070")


def api_key():
    if "SPACE_API_KEY" in os.environ:
        return os.environ["SPACE_API_KEY"]
    with open(os.environ.get("SPACE_KEY_FILE", "/var/lib/space/first.key")) as file:
        return file.read().strip()


KEY = api_key()


def call(method, path, body=None, **headers):
    """One request. Errors are application/problem+json: a code for programs, a sentence for people, and what to do next."""
    headers = {"Authorization": f"Bearer {KEY}", **{name.replace("_", "-"): value for name, value in headers.items()}}
    if isinstance(body, dict):
        body, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
    try:
        return urllib.request.urlopen(urllib.request.Request(URL + path, body, headers, method=method))
    except urllib.error.HTTPError as error:
        problem = json.load(error)
        sys.exit(f"{problem['detail']} ({problem['code']}) {problem.get('next', '')}")


def events(response):
    """Server-sent events, one after another as they arrive: their kind and their data."""
    kind, data = None, None
    for line in response:
        line = line.decode().rstrip("\n")
        if line.startswith("event:"):
            kind = line[6:].strip()
        elif line.startswith("data:"):
            data = json.loads(line[5:])
        elif line == "" and data is not None:
            yield kind, data
            kind, data = None, None


def run(sandbox, *argv):
    """Runs a program and shows its output while it runs. Returns its exit status."""
    # Creating the session gives the command an id. Nothing runs yet, so a connection that breaks from here on loses nothing.
    session = json.load(call("POST", f"/v1/sandboxes/{sandbox}/commands", {"argv": argv}))
    # Attaching starts it. A later attach with the header Last-Event-ID would go on where this one stopped.
    for kind, data in events(call("GET", f"/v1/sandboxes/{sandbox}/commands/{session['session']}/attach")):
        if kind == "stdout":
            print("   |", base64.b64decode(data["data"]).decode(), end="", flush=True)
        elif kind == "stderr":
            print("   !", base64.b64decode(data["data"]).decode(), end="", file=sys.stderr, flush=True)
        elif kind == "exit":
            return data["code"]


PROGRAM = """
import platform, time
print("guest kernel:", platform.release())
for number in range(3):
    print("step", number, flush=True)
    time.sleep(0.2)
with open("answer.txt", "w") as file:
    file.write(open("question.txt").read().replace("?", "!"))
"""

# A machine of its own. "Prefer: wait" answers when it runs; without it the answer comes at once, with an operation to follow.
sandbox = json.load(call("POST", "/v1/sandboxes", {"template": "base"}, Prefer="wait=60"))["sandbox"]["id"]
print("sandbox", sandbox)
try:
    home = f"/v1/sandboxes/{sandbox}/files/content?path=/home/user/"
    call("PUT", home + "question.txt", b"Does it run?\n")
    call("PUT", home + urllib.parse.quote("my program.py"), PROGRAM.encode())
    status = run(sandbox, "python3", "my program.py")
    print("exit status", status)
    print("answer.txt says:", call("GET", home + "answer.txt").read().decode(), end="")
finally:
    call("DELETE", f"/v1/sandboxes/{sandbox}")
    print("deleted")
sys.exit(status)
