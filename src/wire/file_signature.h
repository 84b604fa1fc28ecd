// E2B's signature of a file's URL, for those who check it: node before the guest sees a byte, api before anybody is woken.
#pragma once

#include <string>
#include <string_view>

#include "http/server.h"

namespace space::wire {

// "v1_" and SHA-256 over path, operation ("read" or "write"), user, token and, with one, the expiry.
std::string file_signature(std::string_view path, std::string_view operation, std::string_view user, std::string_view token,
                           std::string_view expiry);

// Whether the request's URL holds the signature that belongs to it, whenever that ends. `token`: of the sandbox.
bool is_signed(const http::Exchange& exchange, std::string_view token);

}  // namespace space::wire
