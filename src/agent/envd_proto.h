// The messages of E2B's in-sandbox services in protobuf's binary form (protobuf.dev, "Encoding"), turned into the JSON form that the
// handlers know (protobuf.dev, "ProtoJSON") and back. For clients that ask for Connect's "proto" codec. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace space::agent::proto {

struct Message;

// Of a method's path ("/process.Process/Start"): nullptr when it is none of these services'.
const Message* request_of(std::string_view path);
const Message* answer_of(std::string_view path);

// Strict: what is cut off, too deep, no UTF-8 or of another wire type is invalid_argument. Unknown fields are skipped.
Result<json::object> decode(const Message& message, std::string_view bytes);
// Of a JSON form that a handler made; fields that the message does not know are left out.
std::string encode(const Message& message, const json::object& object);

}  // namespace space::agent::proto
