"""A tenant with a good key, after what another tenant has."""

import base64
import http.client
import json
import re
import time
import uuid

from framework import attack

METHODS = ("get", "put", "post", "delete")


def raw(t, lines, body=b"", timeout=10):
    """Sends exactly these header lines; (status, body)."""
    connection = http.client.HTTPConnection(t.world.attacker.host, t.world.attacker.port, timeout=timeout)
    try:
        connection.connect()
        connection.sock.sendall("\r\n".join(lines).encode("latin1") + b"\r\n\r\n" + body)
        response = http.client.HTTPResponse(connection.sock)
        response.begin()
        return response.status, response.read(65536)
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error).encode()
    finally:
        connection.close()


@attack("H01", "H21", quick=True)
def foreign_ids(t):
    """Every operation of the API with the bystander's ids and the attacker's key"""
    victim, attacker = t.world.victim, t.world.attacker
    session = t.world.bystander.start(["sleep", "60"])
    operation = victim.ok("GET", "/v1/operations")["operations"][0]["id"]
    key = victim.ok("GET", "/v1/keys")["keys"][0]["id"]
    names = {"id": t.world.bystander.id, "session": session.session, "operation": operation, "key": key}
    document = attacker.ok("GET", "/openapi.json")
    for path, item in document["paths"].items():
        holes = re.findall(r"\{(\w+)\}", path)
        if not set(holes) & set(names):
            continue
        target = re.sub(r"\{(\w+)\}", lambda hole: names.get(hole.group(1), "x"), path) + ("?path=/root/canary" if "/files" in path else "")
        for method in METHODS:
            if method in item and item[method].get("x-space-scope") not in ("host", "publish", None):
                answer = attacker.call(method.upper(), target, {} if method in ("post", "put") else None, timeout=20)
                t.search(answer.body)
                t.attempt(f"{method} {path} is not told apart from what is not there", 200 <= answer.status < 300, f"{answer.status} {answer.body[:120]}")
    t.control("the victim's own key reads the canary", t.world.secrets["the bystander's file"].encode() in victim.call("GET", t.world.bystander.files("content", "/root/canary", user="root")).body)
    t.control("the victim's own key sees its operation", victim.call("GET", f"/v1/operations/{operation}").status == 200)
    for guess in (operation[:-1] + "a", "0" * 24, "1", "%00", operation.upper()):
        t.attempt("a guessed operation", attacker.call("GET", f"/v1/operations/{guess}").status < 400, guess)
    t.attempt("the list of all operations holds a foreign one", operation in json.dumps(attacker.ok("GET", "/v1/operations?limit=200")))


@attack("H03", quick=True)
def odd_keys(t):
    """No key, an empty one, two, in the query, of odd form"""
    good = t.world.attacker.key
    first = "GET /v1/sandboxes HTTP/1.1"
    t.control("the good key opens", raw(t, [first, "Host: x", "Connection: close", f"Authorization: Bearer {good}"])[0] == 200)
    for what, headers in {
        "none": [], "empty": ["Authorization:"], "no token": ["Authorization: Bearer"], "two": [f"Authorization: Bearer {good}"] * 2, "basic": [f"Authorization: Basic {base64.b64encode(good.encode()).decode()}"],
        "cut": [f"Authorization: Bearer {good[:-1]}"], "longer": [f"Authorization: Bearer {good}A"], "upper": [f"Authorization: Bearer {good.upper()}"], "nul": [f"Authorization: Bearer {good}\0"],
        "unicode": ["Authorization: Bearer sk_\xe9" + "A" * 42], "long": ["Authorization: Bearer sk_" + "A" * 7000], "other header": [f"X-Api-Key: {good}x", f"Api-Key: {good}"],
        "tenant by header": ["Space-Tenant: victim"], "list": [f"Authorization: Bearer {good}, {good}"], "quoted": [f'Authorization: Bearer "{good}"'],
    }.items():
        status, _ = raw(t, [first, "Host: x", "Connection: close", *headers])
        t.attempt(f"key {what} opens", status == 200, status)
    for query in (f"?key={good}", f"?api_key={good}", f"?authorization=Bearer%20{good}"):
        t.attempt("a key in the query opens", raw(t, [f"GET /v1/sandboxes{query} HTTP/1.1", "Host: x", "Connection: close"])[0] == 200)
    gone = t.world.tenant("short", expires_in_s=1)
    again = t.world.tenant("revoked")
    t.control("a new tenant's key opens", again.call("GET", "/v1/sandboxes").status == 200)
    for one in t.world.host.ok("GET", "/v1/keys?tenant=revoked")["keys"]:
        t.world.host.ok("DELETE", f"/v1/keys/{one['id']}")
    t.attempt("a revoked key opens", again.call("GET", "/v1/sandboxes").status == 200)
    time.sleep(1.1)
    t.attempt("an expired key opens", gone.call("GET", "/v1/sandboxes").status == 200)


@attack("H05", quick=True)
def keys_for_more(t):
    """Keys that make better keys, other tenants in the body"""
    attacker = t.world.attacker
    weak = attacker.with_key(attacker.ok("POST", "/v1/keys", {"name": "weak", "scopes": ["run"]})["key"])
    t.control("an admin key makes keys of its own tenant", attacker.call("POST", "/v1/keys", {"name": "own"}).status == 201)
    for what, api, body in (("run makes a key", weak, {"name": "x"}), ("run makes an admin", weak, {"name": "x", "scopes": ["admin"]}), ("another tenant", attacker, {"name": "x", "tenant": "victim"}),
                            ("the host's tenant", attacker, {"name": "x", "tenant": "default"}), ("tenant_id", attacker, {"name": "x", "tenant_id": "victim"}),
                            ("hash", attacker, {"name": "x", "hash": "0" * 64}), ("id", attacker, {"name": "x", "id": "a" * 24}), ("scope of all", attacker, {"name": "x", "scopes": ["*"]})):
        t.attempt(what, (answer := api.call("POST", "/v1/keys", body)).status < 400, answer.body[:120])
    for name in ("default", "victim"):
        t.attempt(f"the keys of {name} are listed", attacker.call("GET", f"/v1/keys?tenant={name}").status == 200)
    t.attempt("run lists keys", weak.call("GET", "/v1/keys").status == 200)
    theirs = t.world.victim.ok("GET", "/v1/keys")["keys"][0]["id"]
    t.attempt("another's key is revoked", attacker.call("DELETE", f"/v1/keys/{theirs}").status < 400)
    t.attempt("a template is removed by a tenant", attacker.call("DELETE", "/v1/templates/base:latest").status < 400)


@attack("H10", "H11", "H29", quick=True)
def odd_names(t):
    """Ids and paths that climb, templates that are paths, targets that name another server"""
    attacker, box = t.world.attacker, t.world.sandbox()
    bearer = f"Authorization: Bearer {attacker.key}"
    t.control("a good id is found", attacker.call("GET", box.path).status == 200)
    for id in ("../../etc", "..%2f..%2fetc%2fpasswd", "%00", "%2e%2e", "a" * 4096, "CON", "-rf", "*", ".", "list", "checkpoints", box.id + "%00", box.id + "/../" + t.world.bystander.id, box.id.upper(), "%ef%bc%8e%ef%bc%8e"):
        for path in ("/v1/sandboxes/{}", "/v1/operations/{}", "/v1/keys/{}", "/v1/templates/{}", "/v1/sandboxes/{}/commands"):
            status, body = raw(t, [f"GET {path.format(id)} HTTP/1.1", "Host: x", "Connection: close", bearer])
            t.search(body)
            t.attempt(f"GET {path.format(id)[:60]}", status == 200 and box.id.encode() not in body or status >= 500, f"{status} {body[:100]}")
    for template in ("../../etc/passwd", "/etc/passwd", "base:../../x", "sha256:" + "../" * 10, "base\0", "", "*", "-x"):
        t.attempt(f"template {template!r}", attacker.call("POST", "/v1/sandboxes", {"template": template}).status < 400)
    for path in ("../../../../../../etc/shadow", "/proc/1/root/../../etc/hostname\0x", "~root/x", "relative/x", str(t.world.host_file), "/proc/self/root" + str(t.world.host_file)):
        answer = attacker.call("GET", box.files("content", path, user="user"))
        t.search(answer.body)
        t.attempt(f"file {path[:40]!r}", answer.status == 200, answer.body[:60])
    t.attempt("two paths in one query", attacker.call("GET", f"{box.path}/files/content?path=/etc/hostname&path=/etc/shadow").status == 200)
    for target in ("//127.0.0.1:1/v1/health", "/\\127.0.0.1/x", "http://127.0.0.1:1/v1/sandboxes", "http:127.0.0.1", "/v1/../v1/sandboxes", "/v1//sandboxes", "/v1/sandboxes/" + box.id + "/files/../../" + t.world.bystander.id, "*"):
        status, body = raw(t, [f"GET {target} HTTP/1.1", "Host: x", "Connection: close", bearer])
        t.attempt(f"target {target[:50]}", status == 200 and b'"id":"' + t.world.bystander.id.encode() in body or status >= 500, f"{status} {body[:80]}")


@attack("H34", "H35")
def pages_and_labels(t):
    """Cursors that were tampered with, limits, filters that match nothing, metadata as injection"""
    attacker, victim = t.world.attacker, t.world.victim
    for i in range(2):
        t.world.sandbox("shared" if i == 0 else "vmm")
    page = attacker.ok("GET", "/v1/sandboxes?limit=1")
    t.control("a page has a cursor", page["next"], page)
    t.control("the cursor works", attacker.call("GET", f"/v1/sandboxes?limit=1&after={page['next']}").status == 200)
    cursor = page["next"]
    for odd in (cursor[:-1], cursor + "A", base64.urlsafe_b64encode(b"s1.-1").decode().rstrip("="), base64.urlsafe_b64encode(b"s1.9999999999999999999").decode().rstrip("="), "x" * 100, "%00", "' OR 1=1 --"):
        answer = attacker.call("GET", f"/v1/sandboxes?after={odd}".replace(" ", "%20"))
        t.attempt(f"cursor {odd[:30]}", answer.status == 200, answer.body[:80])
    answer = attacker.call("GET", f"/v1/sandboxes?limit=200&after={base64.urlsafe_b64encode(b's1.1000000').decode().rstrip('=')}")
    t.attempt("a cursor leads to another tenant's", t.world.bystander.id.encode() in answer.body)
    for limit in ("0", "-1", "1000000000", "x", "1e3", "201", ""):
        t.attempt(f"limit {limit}", attacker.call("GET", f"/v1/sandboxes?limit={limit}").status == 200 and limit)
    t.attempt("a filter that matches nothing gives something", attacker.ok("GET", "/v1/sandboxes?metadata.none=none")["sandboxes"])
    t.attempt("an unknown filter is ignored", attacker.call("GET", "/v1/sandboxes?metadata=a%3Db%26c").status == 200)
    marker = uuid.uuid4().hex
    value = f"{marker}\r\nX-Evil: 1\n{{\"a\":1}}${{jndi:ldap://x}}<script>\"\\"
    made = attacker.ok("POST", "/v1/sandboxes", {"metadata": {"k\nX: y": value}}, {"Prefer": "wait=30"})
    back = attacker.call("GET", f"/v1/sandboxes/{made['sandbox']['id']}")
    t.attempt("metadata came back changed", value not in back.json["metadata"].values())
    t.attempt("metadata became a header", "X-Evil" in back.headers)
    t.attempt("metadata is a line of the log", any(line.startswith(('X-Evil', '{"a":1}')) for line in t.world.log_text().splitlines()))
    attacker.delete(made["sandbox"]["id"])
    t.attempt("metadata of a megabyte", attacker.call("POST", "/v1/sandboxes", {"metadata": {"k": "x" * (1 << 20)}}).status < 400)
    t.attempt("metrics name a label of ours", marker in t.world.host.call("GET", "/metrics").body.decode())
    t.attempt("a tenant reads the figures of all", attacker.call("GET", "/metrics").status == 200)
    t.attempt("a victim's list holds the attacker's", any(one["id"] == made["sandbox"]["id"] for one in victim.sandboxes()))
