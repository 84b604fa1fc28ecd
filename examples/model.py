"""A model for the agents beside this file: `ask(messages)` gives the next reply. Either one behind an OpenAI-compatible chat API
(MODEL_URL such as https://host/v1, MODEL_NAME, MODEL_KEY), or a script: a JSON file with replies, one after the other."""
import json
import os
import urllib.request


class ChatModel:
    def __init__(self):
        try:
            self.url, self.name = os.environ["MODEL_URL"].rstrip("/"), os.environ["MODEL_NAME"]
        except KeyError as missing:
            raise SystemExit(f"set {missing.args[0]} to use a model, or give --script FILE") from None
        self.key = os.environ.get("MODEL_KEY", "")

    def ask(self, messages):
        body = json.dumps({"model": self.name, "messages": messages}).encode()
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.key}"} if self.key else {})}
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/chat/completions", body, headers), timeout=300) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]


class ScriptedModel:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.replies = iter(json.load(file))

    def ask(self, messages):
        reply = next(self.replies)
        return reply if isinstance(reply, str) else json.dumps(reply)


def choose(script):
    return ScriptedModel(script) if script else ChatModel()
