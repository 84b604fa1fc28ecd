#!/usr/bin/env python3
"""A coding agent: clones a repository into a sandbox, lets a model run commands and write files there until it says that the task is
done, and prints the patch. Nothing that the model does happens on this machine.

    eval "$(space e2b env)" && pip install e2b
    examples/coding_agent.py ./my-repository "make the tests pass"

E2B's SDK, unmodified. A local repository travels as a git bundle; a URL is cloned from inside, which the sandbox's network must allow.
"""
import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile

from e2b import CommandExitException, Sandbox

import model

RULES = """You work in a git repository at /home/user/work, in a machine of your own. Answer with one JSON object:
{"tool": "run", "command": "…"} runs a shell command there, {"tool": "write", "path": "…", "content": "…"} writes a file,
{"tool": "done", "summary": "…"} ends. You are told what came of it."""
WORK = "/home/user/work"
MOST_STEPS, MOST_OUTPUT = 40, 8000


def clone(sandbox, repository):
    if os.path.isdir(repository):
        with tempfile.TemporaryDirectory() as folder:
            bundle = f"{folder}/bundle"
            subprocess.run(["git", "-C", repository, "bundle", "create", "-q", bundle, "HEAD", "--branches"], check=True)
            with open(bundle, "rb") as file:
                sandbox.files.write("/tmp/bundle", file.read())
        repository = "/tmp/bundle"
    sandbox.commands.run(f"git clone -q {shlex.quote(repository)} {WORK}", timeout=300)


def run(sandbox, command):
    try:
        done = sandbox.commands.run(command, cwd=WORK, timeout=300)
    except CommandExitException as failed:
        done = failed
    return f"status {done.exit_code}\n{done.stdout}{done.stderr}"[:MOST_OUTPUT]


def act(sandbox, reply):
    """(what came of it, whether it was the end)"""
    try:
        step = json.loads(reply)
        tool = step["tool"]
        if tool == "run":
            return run(sandbox, step["command"]), False
        if tool == "write":
            return f"wrote {sandbox.files.write(os.path.join(WORK, step['path']), step['content']).path}", False
        if tool == "done":
            return step.get("summary", ""), True
        return f"there is no tool {tool}", False
    except (ValueError, KeyError, TypeError) as error:
        return f"that was not one of the JSON objects: {error}", False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository")
    parser.add_argument("task")
    parser.add_argument("--script", help="replies in place of a model's, as JSON")
    options = parser.parse_args()
    chosen = model.choose(options.script)
    # What Python compiles of the repository is no part of the patch.
    with Sandbox.create(timeout=1800, metadata={"agent": "coding"}, envs={"PYTHONDONTWRITEBYTECODE": "1"}) as sandbox:
        clone(sandbox, options.repository)
        messages = [{"role": "system", "content": RULES}, {"role": "user", "content": options.task}]
        for _ in range(MOST_STEPS):
            reply = chosen.ask(messages)
            outcome, over = act(sandbox, reply)
            print(f"> {reply[:200]}\n{outcome}", file=sys.stderr)
            if over:
                print(sandbox.commands.run("git add -A && git diff --cached --binary", cwd=WORK).stdout, end="")
                return 0
            messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": outcome}]
    print(f"the model was not done after {MOST_STEPS} steps", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
