"""The contract as the judge of what a server answers: every answer that a test's client receives is held against the API's own /openapi.json.

An answer that breaks it (a status that its operation does not declare, another media type, a body of another shape, a member that nobody
described, a request that was taken although the contract forbids it) is kept in `broken`; ServerTest fails its class for it. What answered
well is counted in `succeeded`, by operationId."""

import json
import re
import urllib.parse

METHODS = ("get", "put", "post", "delete", "patch", "head")
# What is answered before it is known which operation was meant: a request that is no HTTP, too slow, of too long a head, or by another method.
ANYWHERE = {400, 405, 408, 414, 431}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


class Contract:
    def __init__(self, document):
        self.document = document
        self.broken, self.succeeded = [], set()
        self.paths = [(re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)) + r"\Z"), path, item) for path, item in document["paths"].items()]
        self.paths.sort(key=lambda one: one[1].count("{"))  # a fixed word goes before a hole

    def operations(self):
        """(operationId, method, path, operation) of each."""
        for path, item in self.document["paths"].items():
            for method in METHODS:
                if method in item:
                    yield item[method]["operationId"], method.upper(), path, item[method]

    def resolve(self, one):
        while "$ref" in one:
            node = self.document
            for word in one["$ref"].removeprefix("#/").split("/"):
                node = node[word]
            one = node
        return one

    # --- an answer

    def saw(self, method, target, body, answer):
        path, _, query = target.partition("?")
        found = next(((pattern, item) for regex, pattern, item in self.paths if regex.match(path)), None)
        if found is None:
            return  # E2B's paths, ports of sandboxes, and what tests make up
        pattern, item = found
        operation = item.get("get" if method == "HEAD" else method.lower())
        where = f"{method} {pattern}: {answer.status}"
        try:
            if answer.status >= 400:
                self.judge_problem(where, operation, answer)
            else:
                self.judge_success(where, operation, item, method, query, body, answer)
        except (KeyError, TypeError, ValueError) as error:
            self.note(f"{where}: could not be judged: {error!r}")

    def note(self, what):
        if what not in self.broken:
            self.broken.append(what)

    def judge_problem(self, where, operation, answer):
        if answer.status not in ANYWHERE and str(answer.status) not in (operation or {}).get("responses", {}):
            self.note(f"{where} is not declared ({answer.body[:200]!r})")
        if answer.headers.get("Content-Type") != "application/problem+json":
            self.note(f"{where} is no problem+json but {answer.headers.get('Content-Type')}")
        elif answer.body:  # none to a HEAD
            self.hold(where, {"$ref": "#/components/schemas/Problem"}, answer.json)
            if answer.json.get("status") != answer.status or answer.json.get("type") != f"urn:space:error:{answer.json.get('code')}":
                self.note(f"{where} contradicts its own body: {answer.body[:200]!r}")

    def judge_success(self, where, operation, item, method, query, body, answer):
        declared = (operation or {}).get("responses", {}).get(str(answer.status))
        if declared is None:
            return self.note(f"{where} is not declared")
        self.succeeded.add(operation["operationId"])
        content = self.resolve(declared).get("content", {})
        media = answer.headers.get("Content-Type", "").split(";")[0]
        if content and media not in content:
            self.note(f"{where} has the media type {media!r}; declared: {sorted(content)}")
        elif media == "application/json" and content and method != "HEAD":
            self.hold(where, content[media].get("schema", {}), answer.json)
        parameters = [self.resolve(one) for one in [*item.get("parameters", []), *operation.get("parameters", [])]]
        names = {one["name"] for one in parameters if one["in"] == "query"}
        for name, _ in urllib.parse.parse_qsl(query, keep_blank_values=True):
            if name.split(".")[0] not in names:
                self.note(f"{where} took the query parameter {name}, which is not declared")
        taken = self.resolve(operation.get("requestBody", {})).get("content", {})
        if "application/json" in taken and isinstance(body, (bytes, bytearray)) and body:
            self.hold(f"{where} took", taken["application/json"].get("schema", {}), json.loads(body))

    # --- a value and its schema: what of JSON Schema the contract uses

    def hold(self, where, schema, value):
        for fault in self.faults(schema, value, ""):
            self.note(f"{where}: {fault}")

    def faults(self, schema, value, at):
        """What is wrong with `value`, as sentences. Members that an object's schema does not name are wrong unless it allows others."""
        schema = self.merged(schema)
        for several in ("anyOf", "oneOf"):
            if several in schema and any("type" in self.resolve(one) for one in schema[several]):
                tries = [list(self.faults(one, value, at)) for one in schema[several]]
                if all(tries):
                    yield from min(tries, key=len)
                return
        types = schema.get("type", [])
        types = [types] if isinstance(types, str) else types
        if types and not any(self.is_a(value, one) for one in types):
            yield f"{at or 'the body'} is {value!r:.60}, not {' or '.join(types)}"
            return
        if "enum" in schema and value not in schema["enum"] or "const" in schema and value != schema["const"]:
            yield f"{at} is {value!r:.60}, not one of {schema.get('enum', [schema.get('const')])}"
        if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{at} is {value!r:.60}, not like {schema['pattern']}"
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if value < schema.get("minimum", value) or value > schema.get("maximum", value):
                yield f"{at} is {value}, out of its range"
        if isinstance(value, list):
            for number, one in enumerate(value):
                yield from self.faults(schema.get("items", {}), one, f"{at}[{number}]")
        if isinstance(value, dict) and ("properties" in schema or "additionalProperties" in schema):
            yield from self.faults_of_members(schema, value, at)

    def faults_of_members(self, schema, value, at):
        known, others = schema.get("properties", {}), schema.get("additionalProperties", False)
        for name in schema.get("required", []):
            if name not in value:
                yield f"{at}.{name} is missing"
        for name, one in value.items():
            if name in known:
                yield from self.faults(known[name], one, f"{at}.{name}")
            elif isinstance(others, dict):
                yield from self.faults(others, one, f"{at}.{name}")
            elif not others:
                yield f"{at}.{name} is not in the contract"

    def merged(self, schema):
        """Without $ref and allOf."""
        schema = self.resolve(schema)
        if "allOf" not in schema:
            return schema
        parts = [self.merged(one) for one in schema["allOf"]]
        return {"type": "object", "properties": {name: one for part in parts for name, one in part.get("properties", {}).items()},
                "required": [name for part in parts for name in part.get("required", [])]}

    @staticmethod
    def is_a(value, name):
        if name == "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        if name == "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        return isinstance(value, TYPES[name])
