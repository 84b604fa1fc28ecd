"""The contract that the server gives out holds together: every reference leads somewhere, every operation says how it refuses."""

import unittest

from space_server import ServerTest

METHODS = ("get", "put", "post", "delete", "patch")


def references(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for child in node.values():
            yield from references(child)
    elif isinstance(node, list):
        for child in node:
            yield from references(child)


class Contract(ServerTest):
    options = {"pool_ready": 0}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.document = cls.api.with_key(None).ok("GET", "/openapi.json")
        cls.operations = [(item[method], item) for item in cls.document["paths"].values() for method in METHODS if method in item]

    def test_every_reference_leads_somewhere(self):
        lost = set()
        for reference in references(self.document):
            place = self.document
            for part in reference.removeprefix("#/").split("/"):
                place = place.get(part) if isinstance(place, dict) else None
            if place is None:
                lost.add(reference)
        self.assertEqual(lost, set())

    def test_every_operation_says_how_a_key_is_refused(self):
        for operation, _ in self.operations:
            with self.subTest(operation["operationId"]):
                if operation.get("security") != []:
                    self.assertLessEqual({"401", "403"}, set(operation["responses"]))

    def test_every_operation_has_a_name_of_its_own(self):
        names = [operation["operationId"] for operation, _ in self.operations]
        self.assertEqual(len(names), len(set(names)))

    def test_an_operation_with_a_body_says_what_is_wrong_with_one(self):
        for operation, _ in self.operations:
            with self.subTest(operation["operationId"]):
                if "requestBody" in operation:
                    self.assertLessEqual({"400", "413"}, set(operation["responses"]))


if __name__ == "__main__":
    unittest.main()
