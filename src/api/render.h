// What the API shows of the things the control plane remembers, as JSON (schemas in api/openapi.yaml).
#pragma once

#include <string>

#include "base/json.h"
#include "control/types.h"

namespace space::api {

json::object render(const control::Sandbox& sandbox);
json::object render(const control::Operation& operation);
json::object render(const control::Key& key);
json::object render(const control::Event& event);
json::object render(const Error& error);  // as inside an operation: status, code, detail, next

// {"operation":…,"sandbox":…}; the sandbox is left out once it is gone.
std::string render_change(const control::Operation& operation, const control::Sandbox* sandbox);

}  // namespace space::api
