"""Every public method of the unmodified Python SDK against a running server. Started by `tests/e2b/run`, which sets E2B_*."""

import asyncio
import inspect
import os
import sys
import time

import httpx
from e2b import (AsyncSandbox, AuthenticationException, CommandExitException, FileNotFoundException, InvalidArgumentException, NotFoundException, PtySize, Sandbox,
                 SandboxException, SandboxQuery, SandboxState, Secret, TimeoutException)

from checks import check, named, raises, refused, same, tell, until


def ask(method, url, headers=None, **more):
    return httpx.request(method, url, headers={"E2b-Sandbox-Id": s.sandbox_id, "E2b-Sandbox-Port": "49983", **(headers or {})}, **more)


s = None


@check("Sandbox.create")
def _():
    global s
    s = Sandbox.create(timeout=900, metadata={"suite": "python"}, envs={"GLOBAL": "g"})


if s is None:
    sys.exit(1)


@check("commands.run")
def _():
    r = s.commands.run("echo hi; echo no >&2; pwd; id -un; echo $GLOBAL$E2B_SANDBOX")
    same((r.exit_code, r.stdout, r.stderr), (0, "hi\n/home/user\nuser\ngtrue\n", "no\n"))
    same(raises(CommandExitException, lambda: s.commands.run("exit 3")).exit_code, 3)
    same(s.commands.run("id -un; echo $A", user="root", envs={"A": "b"}, cwd="/").stdout, "root\nb\n")
    raises(InvalidArgumentException, lambda: s.commands.run("true", cwd="/not/there"))
    raises(AuthenticationException, lambda: s.commands.run("true", user="nobodyhere"))
    raises(TimeoutException, lambda: s.commands.run("sleep 30", timeout=1))


@check("commands.run streams")
def _():
    seen = []
    s.commands.run("for i in 1 2 3; do echo $i; sleep 0.3; done", on_stdout=seen.append)
    same("".join(seen), "1\n2\n3\n")
    assert len(seen) > 1, "all output came at once"


@check("commands.list")
def _():
    handle = s.commands.run("sleep 60", background=True)
    assert any(p.pid == handle.pid and p.args[-1] == "sleep 60" for p in s.commands.list())
    handle.kill()


@check("commands.kill")
def _():
    handle = s.commands.run("sleep 60", background=True)
    same(s.commands.kill(handle.pid), True)
    same(raises(CommandExitException, handle.wait).exit_code, -1)
    same(s.commands.kill(999999), False)


@check("commands.connect")
def _():
    handle = s.commands.run("for i in 1 2 3 4; do echo $i; sleep 0.5; done", background=True)
    time.sleep(0.7)
    assert s.commands.connect(handle.pid).wait().stdout.endswith("3\n4\n")
    raises(NotFoundException, lambda: s.commands.connect(999999))


@check("commands.send_stdin")
def _():
    handle = s.commands.run('read a; echo "<$a>"', background=True, stdin=True)
    s.commands.send_stdin(handle.pid, "hello\n")
    same(handle.wait().stdout, "<hello>\n")


@check("commands.close_stdin")
def _():
    handle = s.commands.run("cat", background=True, stdin=True)
    s.commands.send_stdin(handle.pid, "abc")
    s.commands.close_stdin(handle.pid)
    same(handle.wait().stdout, "abc")


@check("commands.stream_input")
def _():
    handle = s.commands.run("cat", background=True, stdin=True)
    s.commands.stream_input(handle.pid, iter(["one ", b"two ", "three"]))
    s.commands.close_stdin(handle.pid)
    same(handle.wait().stdout, "one two three")
    raises(NotFoundException, lambda: s.commands.stream_input(999999, ["x"]))


@check("pty.create")
def _():
    out = []
    handle = s.pty.create(PtySize(cols=90, rows=30), timeout=0)
    s.pty.send_stdin(handle.pid, b"stty size; exit\n")
    same(handle.wait(on_pty=lambda data: out.append(bytes(data))).exit_code, 0)
    assert b"30 90" in b"".join(out), out


@check("pty.send_stdin")
def _():
    out = []
    handle = s.pty.create(PtySize(cols=80, rows=24))
    s.pty.send_stdin(handle.pid, b"echo $((20+22)); exit\n")
    handle.wait(on_pty=lambda data: out.append(bytes(data)))
    assert b"42" in b"".join(out), out


@check("pty.stream_input")
def _():
    out = []
    handle = s.pty.create(PtySize(cols=80, rows=24))
    s.pty.stream_input(handle.pid, iter([b"echo $((20+", b"23)); exit\n"]))
    handle.wait(on_pty=lambda data: out.append(bytes(data)))
    assert b"43" in b"".join(out), out


@check("pty.resize")
def _():
    out = []
    handle = s.pty.create(PtySize(cols=80, rows=24))
    s.pty.resize(handle.pid, PtySize(cols=101, rows=33))
    s.pty.send_stdin(handle.pid, b"stty size; exit\n")
    handle.wait(on_pty=lambda data: out.append(bytes(data)))
    assert b"33 101" in b"".join(out), out


@check("pty.connect")
def _():
    first = s.pty.create(PtySize(cols=80, rows=24), timeout=0)
    first.disconnect()
    again = s.pty.connect(first.pid)
    s.pty.send_stdin(first.pid, b"exit\n")
    same(again.wait().exit_code, 0)


@check("pty.kill")
def _():
    handle = s.pty.create(PtySize(cols=80, rows=24))
    same((s.pty.kill(handle.pid), s.pty.kill(999999)), (True, False))


@check("files.write")
def _():
    same(s.files.write("a/b.txt", "hello wörld").path, "/home/user/a/b.txt")
    s.files.write("packed", "x" * 500_000, gzip=True)
    same(s.files.write("meta", "m", metadata={"key": "v"}).metadata, {"key": "v"})
    same(s.commands.run("wc -c < packed; stat -c %U:%a a a/b.txt").stdout, "500000\nuser:755\nuser:644\n")


@check("files.write_files")
def _():
    same([f.path for f in s.files.write_files([{"path": "m1", "data": "1"}, {"path": "/tmp/m2", "data": b"22"}])], ["/home/user/m1", "/tmp/m2"])


@check("files.read")
def _():
    same(s.files.read("a/b.txt"), "hello wörld")
    same(len(s.files.read("a/b.txt", format="bytes")), 12)
    same(sum(len(piece) for piece in s.files.read("packed", format="stream")), 500_000)
    s.files.write("empty", "")
    same(s.files.read("empty"), "")
    raises(FileNotFoundException, lambda: s.files.read("not there"))


@check("files.list")
def _():
    s.commands.run("mkdir -p l/two/three && touch l/one l/two/x && ln -s one l/link")
    same([e.name for e in s.files.list("l", depth=2)], ["link", "one", "two", "three", "x"])
    raises(FileNotFoundException, lambda: s.files.list("nowhere"))


@check("files.make_dir")
def _():
    same((s.files.make_dir("d/e"), s.files.make_dir("d/e")), (True, False))


@check("files.exists")
def _():
    same((s.files.exists("d/e"), s.files.exists("d/f")), (True, False))


@check("files.get_info")
def _():
    info = s.files.get_info("a/b.txt")
    same((info.name, info.size, info.permissions, info.owner), ("b.txt", 12, "-rw-r--r--", "user"))
    same(s.files.get_info("l/link").symlink_target, "/home/user/l/one")


@check("files.rename")
def _():
    same(s.files.rename("m1", "q/m3").path, "/home/user/q/m3")


@check("files.remove")
def _():
    s.files.remove("q")
    same(s.files.exists("q"), False)


@check("files.watch_dir")
def _():
    s.files.make_dir("w")
    watch, seen = s.files.watch_dir("w", recursive=True), []
    s.files.write("w/f", "1")
    s.files.make_dir("w/sub")
    until(lambda: seen.extend(f"{e.type.value}:{e.name}" for e in watch.get_new_events()) or {"create:f", "write:f", "create:sub"} <= set(seen))
    watch.stop()
    raises(FileNotFoundException, lambda: s.files.watch_dir("nowhere"))


@check("git.init")
def _():
    s.git.init("repo")


@check("git.configure_user")
def _():
    s.git.configure_user("A", "a@example.org")


@check("git.add")
def _():
    s.files.write("repo/f", "1")
    s.git.add("repo")


@check("git.commit")
def _():
    s.git.commit("repo", "first")


@check("git.status")
def _():
    same(s.git.status("repo").is_clean, True)


@check("git.create_branch")
def _():
    s.git.create_branch("repo", "side")
    s.git.create_branch("repo", "third")


@check("git.checkout_branch")
def _():
    s.git.checkout_branch("repo", "side")


@check("git.branches")
def _():
    same(s.git.branches("repo").current_branch, "side")


@check("git.delete_branch")
def _():
    s.git.delete_branch("repo", "third")
    assert "third" not in s.git.branches("repo").branches


@check("git.clone")
def _():
    s.commands.run("git clone -q --bare repo served.git")
    s.git.clone("/home/user/served.git", path="copy")


@check("git.remote_add")
def _():
    s.git.remote_add("repo", "served", "/home/user/served.git")


@check("git.remote_get")
def _():
    same(s.git.remote_get("copy", "origin"), "/home/user/served.git")


@check("git.set_config")
def _():
    s.git.set_config("space.test", "yes")


@check("git.get_config")
def _():
    same(s.git.get_config("space.test"), "yes")


@check("git.push")
def _():
    s.files.write("copy/g", "2")
    s.git.add("copy")
    s.git.commit("copy", "second")
    s.git.push("copy")


@check("git.pull")
def _():
    s.git.pull("repo", remote="served", branch="side")
    same(s.files.read("repo/g"), "2")


@check("git.restore")
def _():
    s.files.write("copy/f", "changed")
    s.git.restore("copy", paths=["f"])
    same(s.files.read("copy/f"), "1")


@check("git.reset")
def _():
    s.files.write("copy/f", "changed")
    s.git.reset("copy", mode="hard")
    same(s.files.read("copy/f"), "1")


@check("git.dangerously_authenticate")
def _():
    s.git.dangerously_authenticate("someone", "a-token", host="git.example.org")
    assert "a-token" in s.commands.run("cat ~/.git-credentials").stdout


@check("Sandbox.is_running")
def _():
    same(s.is_running(), True)


@check("Sandbox.get_info")
def _():
    info = s.get_info()
    same((info.sandbox_id, info.template_id, info.metadata, info.state), (s.sandbox_id, "base", {"suite": "python"}, SandboxState.RUNNING))
    raises(NotFoundException, lambda: Sandbox.get_info("i00000000000000000000"))


@check("Sandbox.list")
def _():
    same([i.sandbox_id for i in Sandbox.list(query=SandboxQuery(metadata={"suite": "python"})).next_items()], [s.sandbox_id])
    same([i.sandbox_id for i in Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED])).next_items()], [])


@check("Sandbox.set_timeout")
def _():
    s.set_timeout(600)
    left = s.get_info().end_at.timestamp() - time.time()
    assert 590 < left < 601, left


@check("Sandbox.connect")
def _():
    same(Sandbox.connect(s.sandbox_id).commands.run("echo there").stdout, "there\n")
    raises(NotFoundException, lambda: Sandbox.connect("i00000000000000000000"))


@check("Sandbox.get_metrics", verdict="differs", note="figures are taken when they are asked for, not every 5 s")
def _():
    first = s.get_metrics()[0]
    assert first.cpu_count >= 1 and first.mem_total > 0 and first.disk_total > 0, first


@check("Sandbox.get_host")
def _():
    assert s.get_host(8080).startswith(f"8080-{s.sandbox_id}."), s.get_host(8080)


@check("Sandbox.download_url")
def _():
    s.files.write("signed", "down")
    signed = httpx.URL(s.download_url("signed", user="user", use_signature_expiration=60))
    same((ask("GET", signed).status_code, ask("GET", signed).text), (200, "down"))
    same(ask("GET", signed.copy_set_param("path", "other")).status_code, 401)
    same(ask("GET", httpx.URL(s.download_url("signed", user="user", use_signature_expiration=-60))).status_code, 401)


@check("Sandbox.upload_url")
def _():
    signed = httpx.URL(s.upload_url("sent", user="user", use_signature_expiration=60))
    same(ask("POST", signed, content=b"up", headers={"Content-Type": "application/octet-stream"}).status_code, 200)
    same(s.files.read("sent"), "up")
    same(ask("GET", signed).status_code, 401)


@check("Sandbox.update_network", verdict="differs", note="header rules go into HTTPS alone, have values of 8 bytes or more, and are shown as ***; an egress proxy is refused")
def _():
    s.update_network({"deny_out": ["0.0.0.0/0"], "allow_out": ["1.1.1.1"], "rules": {"api.example.org": [{"transform": {"headers": {"X-Key": "a-secret-value"}}}]}})
    raises(SandboxException, lambda: s.update_network({"deny_out": ["not an address"]}))
    s.update_network({})


@check("Sandbox.get_mcp_url")
def _():
    assert f"50005-{s.sandbox_id}." in s.get_mcp_url(), s.get_mcp_url()


@check("Sandbox.get_mcp_token")
def _():
    s.commands.run("mkdir -p /etc/mcp-gateway && printf token-of-a-gateway >/etc/mcp-gateway/.token", user="root")
    same(s.get_mcp_token(), "token-of-a-gateway")


@check("Sandbox.beta_pause")
def _():
    s.beta_pause()
    s.connect(timeout=900)
    same(s.is_running(), True)


@check("Sandbox.pause")
def _():
    s.files.write("kept", "k")
    s.pause()
    same((s.is_running(), s.get_info().state), (False, SandboxState.PAUSED))
    s.connect(timeout=900)
    same((s.is_running(), s.files.read("kept")), (True, "k"))


@check("Sandbox.fork")
def _():
    child = s.fork(timeout=120)[0]
    assert child.sandbox_id != s.sandbox_id
    same(child.files.read("kept"), "k")
    child.files.write("kept", "child")
    same(s.files.read("kept"), "k")
    child.kill()


snapshots = []


@check("Sandbox.create_snapshot")
def _():
    snapshots.append(s.create_snapshot())
    s.files.write("kept", "later")
    child = Sandbox.create(snapshots[0].snapshot_id, timeout=120)
    same((child.files.read("kept"), s.files.read("kept")), ("k", "later"))
    child.kill()


@check("Sandbox.create_snapshot of the files alone")
def _():
    boot = "cat /proc/sys/kernel/random/boot_id"
    s.commands.run("echo of-memory >/dev/shm/of-memory")
    s.files.write("kept", "on-disk")
    files = s.create_snapshot(name="files-of-py", mode="filesystem")
    same((files.snapshot_id, files.names), ("files-of-py:default", ["files-of-py"]))
    same(s.commands.run("cat /dev/shm/of-memory").stdout, "of-memory\n")
    s.files.write("kept", "later")
    child = Sandbox.create(files.snapshot_id, timeout=120)
    same((child.files.read("kept"), child.files.exists("/dev/shm/of-memory")), ("on-disk", False))
    assert child.commands.run(boot).stdout != s.commands.run(boot).stdout, "it has not booted"
    child.kill()
    same((Sandbox.delete_snapshot(files.snapshot_id), Sandbox.delete_snapshot(files.snapshot_id)), (True, False))


@check("Sandbox.list_snapshots")
def _():
    same([one.snapshot_id for one in s.list_snapshots().next_items()], [snapshots[0].snapshot_id])


@check("Sandbox.delete_snapshot")
def _():
    same((Sandbox.delete_snapshot(snapshots[0].snapshot_id), Sandbox.delete_snapshot(snapshots[0].snapshot_id)), (True, False))


@check("Secret.create")
def _():
    made = Secret.create("suite-py", "a-value-of-mine", metadata={"of": "the suite"})
    same((made.name, made.metadata), ("suite-py", {"of": "the suite"}))
    raises(Exception, lambda: Secret.create("suite-py", "another-value"))


@check("Secret.list")
def _():
    assert "suite-py" in [one.name for one in Secret.list().next_items()]


@check("Secret.get_info")
def _():
    same(Secret.get_info("suite-py").metadata, {"of": "the suite"})


@check("Secret.exists")
def _():
    same((Secret.exists("suite-py"), Secret.exists("suite-other")), (True, False))


@check("Secret.fill")
def _():
    s.update_network({"rules": {"api.example.org": [{"transform": {"headers": {"Authorization": f"Bearer {Secret.fill('suite-py')}"}}}]}})
    s.update_network({})


@check("Secret.update")
def _():
    same(Secret.update("suite-py", "a-newer-value").metadata, {"of": "the suite"})


@check("Secret.destroy")
def _():
    same((Secret.destroy("suite-py"), Secret.destroy("suite-py")), (True, False))


@check("AsyncSandbox.connect", note="and its other methods, which send what those of Sandbox do")
def _():
    async def through():
        other = await AsyncSandbox.connect(s.sandbox_id)
        one, two = await asyncio.gather(other.commands.run("echo 1"), other.commands.run("echo 2"))
        await other.files.write("async", one.stdout + two.stdout)
        return await other.files.read("async")

    same(asyncio.run(through()), "1\n2\n")


@check("Sandbox.create with HTTPS ports")
def _():
    own = Sandbox.create(timeout=120, network={"https_ports": [3000]})
    same(own.get_info().network["https_ports"], [3000])
    own.commands.run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=x -keyout k -out c 2>/dev/null && echo page >page")
    own.commands.run("openssl s_server -accept 3000 -key k -cert c -WWW -quiet", background=True)
    headers = {"E2b-Sandbox-Id": own.sandbox_id, "E2b-Sandbox-Port": "3000"}
    same(until(lambda: ask("GET", f"{os.environ['E2B_SANDBOX_URL']}/page", headers).text.endswith("page\n")), True)
    own.kill()
    raises(SandboxException, lambda: Sandbox.create(network={"https_ports": [49983]}), "49983")


refused("Sandbox.create with an egress proxy", "proxy", lambda: Sandbox.create(network={"egress_proxy": {"address": "proxy.example.org:1080"}}))
refused("Sandbox.create with mcp", "MCP", lambda: Sandbox.create(mcp={"exa": {"apiKey": "x"}}))
refused("Secret.iam_token", "identit", lambda: Sandbox.create(iam={"tokens": {"t": Secret.iam_token(audience="a", token_type="JWT-SVID")}}))


@check("Sandbox.create with a wrong template")
def _():
    raises(SandboxException, lambda: Sandbox.create("nothing-there"), "not found")


@check("Sandbox.create with a wrong key")
def _():
    raises(AuthenticationException, lambda: Sandbox.create(api_key="e2b_" + "0" * 40))


@check("Sandbox.kill")
def _():
    same(s.kill(), True)
    same(Sandbox.kill(s.sandbox_id), False)
    same(s.is_running(), False)


@check("Sandbox.create with a timeout")
def _():
    short = Sandbox.create(timeout=3)
    until(lambda: not short.is_running(), 30)
    raises(NotFoundException, short.get_info)


def public_methods(prefix, kind):
    return [f"{prefix}.{name}" for name, value in inspect.getmembers(kind) if not name.startswith("_") and callable(value)]


for prefix, kind in {"Sandbox": Sandbox, "commands": type(s.commands), "files": type(s.files), "pty": type(s.pty), "git": type(s.git), "Secret": Secret}.items():
    for method in public_methods(prefix, kind):
        if method not in named:
            tell(method, "not checked")
