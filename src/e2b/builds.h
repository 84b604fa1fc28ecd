// E2B's builds on the build service: names whose tags move, links for uploads that need no key, and the form that E2B's clients send.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "build/builds.h"
#include "e2b/state.h"

namespace space::e2b {

struct AliasName {
  std::string name, tag;  // the tag is "" when none was said
};
// "x", "x:v1", "ns/x:v1": lower case. invalid_request.
Result<AliasName> alias_name(std::string_view text);
Result<std::string> alias_tag(std::string_view text);

// The body of a build's start: what E2B calls fromTemplate, fromImage, steps, startCmd, readyCmd. An image is one that the operator
// has imported under its name and tag (docs/templates.md): this server fetches none.
Result<build::Spec> read_build(State& state, const json::object& body);

// What a reference of a client's ("x:latest") means: the release behind one of our names, else the reference itself.
std::string resolve_alias(const State& state, const std::string& reference);
// The name that a client knows for a release's reference.
std::string shown_name(const State& state, const std::string& reference);

// A link's proof: for one tenant and one name, for a while, until this process ends.
std::string upload_token(const State& state, const std::string& tenant, const std::string& hash);
// The tenant that it was given to; nothing when it is none of ours, or too old.
std::optional<std::string> check_upload_token(const State& state, std::string_view token, const std::string& hash);

std::string build_uuid(std::string_view id);  // of a build: the same for ever

// Removes the built template that {template} of the path names, with its releases: false when there is none of that name.
Task<bool> remove_built(State& state, const http::Exchange& exchange);

// Whether this request is an upload with such a proof, which stands for a key.
bool is_signed_upload(const http::Exchange& exchange);

}  // namespace space::e2b
