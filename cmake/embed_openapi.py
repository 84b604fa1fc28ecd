#!/usr/bin/env python3
"""Turns the OpenAPI file into a C++ source that holds it as JSON: embed_openapi.py FROM.yaml TO.cc VERSION"""
import json
import sys

import yaml  # Debian: python3-yaml

source, target, version = sys.argv[1:]
with open(source, encoding="utf-8") as file:
    document = yaml.safe_load(file)
document["info"]["version"] = version
text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
# In pieces, since compilers bound the length of one literal.
pieces = [text[i : i + 8000] for i in range(0, len(text), 8000)]
with open(target, "w", encoding="utf-8") as file:
    file.write('// Made by cmake/embed_openapi.py from api/openapi.yaml.\n#include "api/openapi.h"\n\n#include <string>\n\n')
    file.write("namespace space::api {\n\nstd::string_view openapi_json() {\n  static const std::string text = [] {\n    std::string all;\n")
    for piece in pieces:
        file.write(f'    all += R"openapi({piece})openapi";\n')
    file.write("    return all;\n  }();\n  return text;\n}\n\n}  // namespace space::api\n")
