"""A client of SPACE's HTTP API for the tests, on the standard library alone. One connection a call; a stream keeps its own."""

import base64
import http.client
import json
import threading
import time
import urllib.parse
import uuid


class ApiError(Exception):
    def __init__(self, answer):
        super().__init__(f"{answer.status} {answer.body[:400]!r}")
        self.status = answer.status
        self.code = answer.json.get("code") if isinstance(answer.json, dict) else None


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body
        is_json = "json" in headers.get("Content-Type", "")
        self.json = json.loads(body) if is_json and body else None


class Event:
    def __init__(self, id, kind, data):
        self.id, self.kind, self.data = id, kind, data

    @property
    def bytes(self):
        return base64.b64decode(self.data["data"])

    def __repr__(self):
        return f"{self.kind}#{self.id}"


class EventStream:
    """Server-sent events of one connection, as they come. Close it, or leave its `with`, to drop the connection."""

    def __init__(self, connection, response):
        self.connection, self.response = connection, response

    def __iter__(self):
        event_id, kind, data = "", "message", []
        while True:
            line = self.response.readline()
            if not line:
                return
            line = line.rstrip(b"\r\n").decode()
            if line == "":
                if data:
                    yield Event(event_id, kind, json.loads("\n".join(data)))
                kind, data = "message", []
            elif line.startswith(":"):
                continue
            else:
                field, _, value = line.partition(":")
                value = value[1:] if value.startswith(" ") else value
                if field == "id":
                    event_id = value
                elif field == "event":
                    kind = value
                elif field == "data":
                    data.append(value)

    def close(self):
        # shutdown first: a reader in another thread is woken by it, and only by it.
        try:
            if self.connection.sock is not None:
                self.connection.sock.shutdown(2)
        except OSError:
            pass
        self.response.close()
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


class Result:
    """What a command did: bytes by stream, its exit, and the events they came in."""

    def __init__(self):
        self.stdout, self.stderr, self.pty = b"", b"", b""
        self.exit, self.dropped, self.events = None, 0, []
        self.seconds = 0.0

    code = property(lambda self: self.exit["code"])
    signal = property(lambda self: self.exit.get("signal", 0))
    timed_out = property(lambda self: self.exit.get("timed_out", False))

    def add(self, event):
        if event.kind in ("stdout", "stderr", "pty"):
            setattr(self, event.kind, getattr(self, event.kind) + event.bytes)
        elif event.kind == "dropped":
            self.dropped += event.data["bytes"]
        elif event.kind == "exit":
            self.exit = event.data


class Api:
    """`contract`: what judges every answer (contract.py); None judges nothing. `tls`: an ssl.SSLContext for https."""

    def __init__(self, url, key, contract=None, tls=None):
        parts = urllib.parse.urlsplit(url)
        self.url, self.host, self.port, self.key, self.contract, self.tls = url, parts.hostname, parts.port, key, contract, tls

    def with_key(self, key):
        return Api(self.url, key, self.contract, self.tls)

    def judged(self, method, path, body, answer):
        if self.contract is not None:
            self.contract.saw(method, path, body, answer)
        return answer

    def connection(self, timeout=60):
        if self.tls is not None:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.tls)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def headers(self, extra=None):
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        headers.update(extra or {})
        return headers

    def call(self, method, path, body=None, headers=None, timeout=90):
        """One request; any status is an answer. `body`: bytes, or anything that becomes JSON."""
        headers = self.headers(headers)
        if body is not None and not isinstance(body, (bytes, bytearray)) and not hasattr(body, "read"):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        connection = self.connection(timeout)
        try:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return self.judged(method, path, body, Answer(response.status, response.headers, response.read()))
        finally:
            connection.close()

    def ok(self, method, path, body=None, headers=None, timeout=90):
        """The JSON of a request that must succeed."""
        answer = self.call(method, path, body, headers, timeout)
        if answer.status >= 400:
            raise ApiError(answer)
        return answer.json

    def events(self, path, last_id=None, headers=None, timeout=60):
        headers = self.headers({"Accept": "text/event-stream", **(headers or {})})
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        connection = self.connection(timeout)
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            answer = self.judged("GET", path, None, Answer(response.status, response.headers, response.read()))
            connection.close()
            raise ApiError(answer)
        self.judged("GET", path, None, Answer(response.status, response.headers, b""))
        return EventStream(connection, response)

    def operation(self, id, limit=60):
        """The operation once it is over."""
        until = time.monotonic() + limit
        while True:
            operation = self.ok("GET", f"/v1/operations/{id}?wait=20")
            if operation["state"] not in ("pending", "running"):
                return operation
            if time.monotonic() > until:
                raise TimeoutError(f"operation {id} is still {operation['state']}")

    def create(self, **options):
        """A running sandbox. Use it in a `with`, which deletes it."""
        answer = self.ok("POST", "/v1/sandboxes", options, {"Prefer": "wait=60", "Idempotency-Key": uuid.uuid4().hex})
        sandbox = answer["sandbox"]
        if sandbox["state"] != "running":
            operation = self.operation(answer["operation"]["id"])
            if operation["state"] != "succeeded":
                raise AssertionError(f"create ended as {operation}")
        return Sandbox(self, sandbox["id"])

    def sandboxes(self, query=""):
        found, after = [], ""
        while True:
            page = self.ok("GET", f"/v1/sandboxes?limit=100{query}" + (f"&after={urllib.parse.quote(after)}" if after else ""))
            found += page["sandboxes"]
            after = page.get("next")
            if not after:
                return found

    def delete(self, id):
        """Deletes and waits until it is gone; one that is gone already is fine."""
        answer = self.call("DELETE", f"/v1/sandboxes/{id}", headers={"Prefer": "wait=60"})
        if answer.status == 202:
            self.operation(answer.json["operation"]["id"])
        elif answer.status not in (200, 404):
            raise ApiError(answer)


class Sandbox:
    def __init__(self, api, id):
        self.api, self.id, self.path = api, id, f"/v1/sandboxes/{id}"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.api.delete(self.id)

    def get(self):
        return self.api.ok("GET", self.path)

    def change(self, verb, body=None):
        """Asks for a change (suspend, wake, checkpoint, …) and waits for its end; the operation, whatever came of it."""
        answer = self.api.call("POST", f"{self.path}/{verb}", body or {}, {"Prefer": "wait=120"}, timeout=150)
        if "operation" not in (answer.json or {}):
            raise ApiError(answer)
        return self.api.operation(answer.json["operation"]["id"])

    def start(self, command, **options):
        """A command session that is not attached yet, so nothing runs. A list is argv, text a line for the shell."""
        body = {"argv": command} if isinstance(command, list) else {"command": command}
        body.update(options)
        return Command(self, self.api.ok("POST", f"{self.path}/commands", body))

    def run(self, command, timeout=60, **options):
        """Runs a command to its end."""
        return self.start(command, **options).finish(timeout=timeout)

    def output(self, command, **options):
        """The standard output of a command that must succeed, as text without the last line break."""
        result = self.run(command, **options)
        if result.code != 0:
            raise AssertionError(f"{command!r} ended with {result.exit}: {result.stderr[-2000:]!r}")
        return result.stdout.decode().rstrip("\n")

    def files(self, call, path, **query):
        query = {"path": path, **query}
        return f"{self.path}/files/{call}?" + urllib.parse.urlencode(query, quote_via=urllib.parse.quote)

    def write(self, path, content, **query):
        return self.api.ok("PUT", self.files("content", path, **query), body=content, headers={"Content-Type": "application/octet-stream"})

    def read(self, path, **query):
        answer = self.api.call("GET", self.files("content", path, **query))
        if answer.status >= 400:
            raise ApiError(answer)
        return answer.body

    def stat(self, path, **query):
        return self.api.ok("GET", self.files("stat", path, **query))

    def list(self, path, **query):
        return self.api.ok("GET", self.files("list", path, **query))["entries"]


class Command:
    def __init__(self, sandbox, created):
        self.sandbox, self.api = sandbox, sandbox.api
        self.session, self.process = created["session"], created["process"]
        self.token, self.created = created["token"], created
        self.path = f"{sandbox.path}/commands/{self.session}"

    def attach(self, last_id=None, key=None, timeout=60):
        api = self.api if key is None else self.api.with_key(key)
        return api.events(f"{self.path}/attach", last_id=last_id, timeout=timeout)

    def finish(self, last_id=None, timeout=60):
        result, begun = Result(), time.monotonic()
        with self.attach(last_id, timeout=timeout) as stream:
            for event in stream:
                result.events.append(event)
                result.add(event)
        result.seconds = time.monotonic() - begun
        if result.exit is None:
            raise AssertionError(f"the stream ended without an exit: {result.events[-3:]}")
        return result

    def in_background(self):
        """Attaches in a thread. `wait` joins it and gives the result."""
        return Background(self)

    def get(self):
        return self.api.ok("GET", self.path)

    def stdin(self, content=b"", close=False):
        return self.api.call("POST", f"{self.path}/stdin" + ("?close=1" if close else ""), content, {"Content-Type": "application/octet-stream"})

    def signal(self, name):
        return self.api.call("POST", f"{self.path}/signal", {"signal": name})

    def resize(self, rows, cols):
        return self.api.call("POST", f"{self.path}/resize", {"rows": rows, "cols": cols})

    def kill(self):
        return self.api.call("DELETE", self.path)


class Background(threading.Thread):
    def __init__(self, command):
        super().__init__(daemon=True)
        self.command, self.result, self.error = command, Result(), None
        self.change = threading.Condition()
        self.start()

    def run(self):
        try:
            with self.command.attach() as stream:
                for event in stream:
                    with self.change:
                        self.result.events.append(event)
                        self.result.add(event)
                        self.change.notify_all()
        except Exception as error:  # told by wait()
            self.error = error
        with self.change:
            self.change.notify_all()

    def until(self, condition, timeout=20):
        """Waits until `condition(result)` holds."""
        with self.change:
            if not self.change.wait_for(lambda: condition(self.result) or self.error, timeout):
                raise AssertionError(f"not seen in {timeout} s: {self.result.__dict__}")
        if self.error:
            raise self.error

    def wait(self, timeout=60):
        self.join(timeout)
        if self.error:
            raise self.error
        if self.is_alive() or self.result.exit is None:
            raise AssertionError(f"no exit within {timeout} s; seen: {self.result.events[-5:]}")
        return self.result
