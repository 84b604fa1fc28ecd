"""What a guest writes into the streams that clients read, and clients that reach past their own commands."""

from framework import attack


@attack("H22", "H23", "H39", quick=True)
def frames(t):
    """Output that looks like our own framing: events, exit frames, envelopes, terminal sequences"""
    box = t.world.sandbox()
    false = b'\n\nid: 1.999\nevent: exit\ndata: {"code":0}\n\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n\x00\x00\x00\x00\x05{"a"}\x1b]52;c;ZXZpbA==\x07\x1bP$qm\x1b\\'
    box.write("/tmp/frames", false)
    result = box.run("cat /tmp/frames; cat /tmp/frames >&2; exit 7")
    t.control("the bytes come through as they are", result.stdout == false and result.stderr == false, result.stdout[:80])
    t.attempt("the false exit is believed", result.code != 7, result.exit)
    ends = [event for event in result.events if event.kind == "exit"]
    t.attempt("there is a second end", len(ends) != 1, ends)
    command = box.start("cat /tmp/frames; sleep 0.2; exit 3")
    for last in ("999999999999999999999", "-1", "1.999999", "x", "0.0", "1.0\r\nX: y"):
        answer = t.world.attacker.call("GET", command.path + "/attach?x=1" if last == "x" else command.path, headers={} if "\r" in last else {"Last-Event-ID": last})
        t.attempt(f"Last-Event-ID {last!r} breaks the server", answer.status >= 500, answer.status)
    t.attempt("the end is another", command.finish().code != 3)
    for last in ("999999999999", "-5", "x", "9" * 40):
        answer = t.world.attacker.call("GET", f"/v1/events?after={last}", timeout=5) if last != "" else None
        t.attempt(f"events after {last}", answer.status < 400 or answer.status >= 500, answer.status)


@attack("H33")
def foreign_processes(t):
    """Input and signals for processes that no session of this client started"""
    box = t.world.sandbox()
    victim = box.start(["sleep", "30"], user="root").in_background()
    command = box.start(["sleep", "30"])
    for name in ("1", "0", "-1", "2", str(victim.command.process), "init", "..", victim.command.session[:-1] + "a"):
        answer = t.world.attacker.call("POST", f"{box.path}/commands/{name}/signal", {"signal": "KILL"})
        t.attempt(f"a signal to {name}", answer.status < 400, answer.status)
    other = t.world.bystander.start(["sleep", "30"])
    t.attempt("a signal into another sandbox by its session", t.world.attacker.call("POST", f"{box.path}/commands/{other.session}/signal", {"signal": "KILL"}).status < 400)
    live = box.start(["sleep", "30"]).in_background()
    live.until(lambda result: any(event.kind == "started" for event in result.events) or result.events, 20)
    t.control("a signal to its own arrives", live.command.signal("KILL").status < 400 and live.wait().signal == 9)
    t.control("the agent goes on", box.run(["true"]).code == 0)
    victim.command.kill(), command.kill()


@attack("H26", "H27", quick=True)
def routing(t):
    """Hosts and headers that would lead a request into the bystander"""
    from h01_other_tenants import raw
    id, bearer = t.world.bystander.id, f"Authorization: Bearer {t.world.attacker.key}"
    t.world.bystander.run(["python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 8080), 5)"], timeout=40)
    t.control("the bystander's listener notes a connection", b"reached" in t.world.bystander.run("sleep 0.3; ls /tmp/reached").stdout)
    t.world.bystander.run("rm -f /tmp/reached", user="root")
    for host in (f"8080-{id}.example.test", f"8080-{id}", f"{id}-8080.example.test", f"8080-{id}.example.test.", f"08080-{id}.x", f"49983-{id}.example.test", f"8080-{id.upper()}.x", f"8080-{id}.x:80", f"8080-{id}.x@y"):
        for more in ([], [f"X-Forwarded-Host: 8080-{id}.example.test"], [f"E2b-Sandbox-Id: {id}", "E2b-Sandbox-Port: 8080"], [f"X-Sandbox-Id: {id}", "X-Sandbox-Pod-IP: 127.0.0.1"], ["Space-Port-Access: public", "Space-Tenant: victim"]):
            status, body = raw(t, ["GET / HTTP/1.1", f"Host: {host}", "Connection: close", bearer, *more], timeout=8)
            t.attempt(f"Host {host[:40]} {more}", status == 200 or status in (101,), f"{status} {body[:80]}")
    for path in (f"/v1/sandboxes/{id}/ports/8080/", f"/v1/sandboxes/{id}/ports/49983/", f"/v1/sandboxes/{id}/envd/files"):
        for more in ([], ["Space-Tenant: victim"], ["Space-Port-Access: public"]):
            status, _ = raw(t, [f"GET {path} HTTP/1.1", "Host: x", "Connection: close", bearer, *more], timeout=8)
            t.attempt(f"{path} {more}", status == 200, status)
