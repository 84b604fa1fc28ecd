"""Template builds by the unmodified Python SDK. Started by `tests/e2b/run python-templates`."""

import json
import os
import pathlib
import re
import tempfile
import time

from e2b import Sandbox, Template, wait_for_process


def check(method):
    def run(function):
        begun, failure = time.monotonic(), ""
        try:
            function()
        except Exception as error:  # noqa: BLE001: whatever it is, it is told
            failure = f"{type(error).__name__}: {error}"
        print(json.dumps({"method": method, "verdict": "works", "note": "", "failure": failure, "seconds": time.monotonic() - begun}), flush=True)
    return run


def raises(call, text):
    try:
        call()
    except Exception as error:  # noqa: BLE001
        assert re.search(text, str(error)), str(error)
        return
    raise AssertionError("no error came")


context = pathlib.Path(tempfile.mkdtemp(prefix="space-e2b-"))
(context / "folder").mkdir()
(context / "file.txt").write_text("a file\n")
(context / "folder" / "one.txt").write_text("one\n")
name = f"tt-py-{os.getpid()}"
lines = []


def build(template, alias):
    return Template.build(template, alias, on_build_logs=lambda entry: lines.append(entry.message))


@check("Template.build")
def _():
    template = (Template(file_context_path=str(context)).from_template("base").set_envs({"GREETING": "hello"}).set_workdir("/app").copy("file.txt", "file.txt")
                .copy("folder", "folder").run_cmd("echo $GREETING > made").set_start_cmd("sleep 98765", wait_for_process("sleep")))
    info = build(template, name)
    assert re.fullmatch(r"[0-9a-f-]{36}", info.build_id), info
    sandbox = Sandbox.create(name)
    out = sandbox.commands.run("pwd; cat file.txt folder/one.txt made; pgrep -fc '^sleep 98765'").stdout
    assert out.split("\n") == ["/app", "a file", "one", "hello", "1", ""], out
    sandbox.kill()


@check("Template.build that fails")
def _():
    raises(lambda: build(Template().from_template("base").run_cmd("exit 7"), name + "-fails"), "failed to run command 'exit 7': exit status 7")


@check("Template.exists")
def _():
    assert Template.exists(name) and not Template.exists(name + "-none")


@check("Template.assign_tags")
def _():
    assert sorted(Template.assign_tags(name, ["stable"]).tags) == ["stable"]
    Sandbox.create(name + ":stable").kill()


@check("Template.get_tags")
def _():
    assert sorted(tag.tag for tag in Template.get_tags(name)) == ["default", "stable"]


@check("Template.remove_tags")
def _():
    Template.remove_tags(name, ["stable"])
    assert [tag.tag for tag in Template.get_tags(name)] == ["default"]
