// Randomness from the kernel, and the ids and tokens made of it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace space {

// Fills `out` from getrandom(2). Aborts when the kernel cannot give any: nothing sensible can go on without it.
void random_bytes(std::span<std::byte> out);

// An id: 24 characters of [a-z0-9], the first a letter; 123 bits; fits a DNS label. (`{20,}` of the design.)
std::string new_id();
bool is_id(std::string_view text);  // [a-z0-9]{20,40}

// A secret for a client: `prefix` and 43 characters of base64url (256 bits).
std::string new_token(std::string_view prefix);

}  // namespace space
