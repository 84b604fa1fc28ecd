"""How an agent is asked what it does next: a program that speaks JSON lines, or an HTTP endpoint that speaks the chat format with tools.

A driver has begin(start), next(result) and close(); next gives {"tool": name, "arguments": {…}} or {"done": text}. AgentFailed: the agent
itself broke, so that its run says nothing about SPACE.
"""

import http.client
import contextlib
import json
import os
import selectors
import shlex
import subprocess
import tempfile
import time
import urllib.parse

LONGEST = 4 << 20
NOBODY = 65534
TOOLS = {
    "exec": ("Run a shell command in the sandbox as root", {"command": "string", "timeout_s": "integer"}, ["command"]),
    "read_file": ("Read a file of the sandbox", {"path": "string"}, ["path"]),
    "write_file": ("Write a file in the sandbox", {"path": "string", "content": "string"}, ["path", "content"]),
}


class AgentFailed(Exception):
    pass


def tool_schemas():
    return [{"type": "function", "function": {"name": name, "description": text, "parameters": {"type": "object", "properties": {key: {"type": kind} for key, kind in fields.items()}, "required": needed}}}
            for name, (text, fields, needed) in TOOLS.items()]


class Program:
    """PROGRAM reads lines {"type": "start", …} and {"type": "result", …} and writes lines with "tool" or "done". It runs as nobody, in an empty
    folder: what it reaches, it is to reach through the sandbox."""

    def __init__(self, command, patience):
        self.words, self.patience, self.process = shlex.split(command), patience, None

    def begin(self, start):
        self.folder = tempfile.TemporaryDirectory(prefix="space-agent-")
        os.chown(self.folder.name, NOBODY, NOBODY)
        environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": self.folder.name, "LANG": "C.UTF-8"}
        try:
            self.process = subprocess.Popen(self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=self.folder.name, env=environment, user=NOBODY, group=NOBODY, extra_groups=[])
        except OSError as error:
            raise AgentFailed(f"{self.words[0]} cannot be started as nobody: {error}") from None
        self.held = b""
        return self.next({"type": "start", **start, "tools": tool_schemas()})

    def next(self, message):
        try:
            self.process.stdin.write(json.dumps({"type": "result", **message}).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise AgentFailed("it ended without a word") from None
        line = self.line()
        try:
            answer = json.loads(line)
            if not isinstance(answer, dict) or not ("tool" in answer or "done" in answer):
                raise ValueError
            return answer
        except ValueError:
            raise AgentFailed(f"it wrote {line[:200]!r}, which is no line of the protocol") from None

    def line(self):
        until = time.monotonic() + self.patience
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.held:
                if len(self.held) > LONGEST or not selector.select(max(0, until - time.monotonic())):
                    raise AgentFailed("its line is too long" if len(self.held) > LONGEST else f"it said nothing for {self.patience} s")
                piece = os.read(self.process.stdout.fileno(), 65536)
                if not piece:
                    raise AgentFailed("it ended without saying that it is done")
                self.held += piece
        line, _, self.held = self.held.partition(b"\n")
        return line

    def close(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            with contextlib.suppress(BrokenPipeError):  # what it did not read goes with it
                self.process.stdin.close()
            self.process.stdout.close()
            self.folder.cleanup()


class Endpoint:
    """An HTTP endpoint of the chat-completions format: messages and tools go there, a message with tool_calls comes back."""

    def __init__(self, url, model, key, patience):
        self.url, self.model, self.key, self.patience = urllib.parse.urlsplit(url), model, key, patience

    def begin(self, start):
        self.messages = [{"role": "system", "content": start["goal"]}, {"role": "user", "content": "Begin."}]
        self.calls = []
        return self.ask()

    def next(self, message):
        self.messages.append({"role": "tool", "tool_call_id": self.current, "content": json.dumps(message)})
        return self.take() if self.calls else self.ask()

    def ask(self):
        body = {"messages": self.messages, "tools": tool_schemas(), **({"model": self.model} if self.model else {})}
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.key}"} if self.key else {})}
        kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.url.hostname, self.url.port, timeout=self.patience)
        try:
            connection.request("POST", (self.url.path or "/") + ("?" + self.url.query if self.url.query else ""), json.dumps(body).encode(), headers)
            response = connection.getresponse()
            content = response.read(LONGEST)
            if response.status != 200:
                raise AgentFailed(f"the endpoint answered {response.status}: {content[:200]!r}")
            message = json.loads(content)["choices"][0]["message"]
            calls = message.get("tool_calls") or []
            self.calls = [(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"] or "{}")) for call in calls]
        except (OSError, http.client.HTTPException) as error:
            raise AgentFailed(f"the endpoint cannot be asked: {error!r}") from None
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise AgentFailed(f"the endpoint's answer is not of the chat format: {error!r}") from None
        finally:
            connection.close()
        self.messages.append(message)
        return self.take() if self.calls else {"done": str(message.get("content") or "")}

    def take(self):
        self.current, name, arguments = self.calls.pop(0)
        return {"tool": name, "arguments": arguments}

    def close(self):
        pass
