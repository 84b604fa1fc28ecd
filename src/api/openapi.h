// api/openapi.yaml as JSON, put into the program at build time (cmake/embed_openapi.py).
#pragma once

#include <string_view>

namespace space::api {

std::string_view openapi_json();

}  // namespace space::api
