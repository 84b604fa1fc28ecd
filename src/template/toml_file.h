// TOML that a person wrote, read strictly: a bound on its length, errors with their line, no key that is not known.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <string_view>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "base/result.h"

namespace space::tmpl {

using Complaint = std::function<tl::unexpected<Error>(std::string_view what)>;

inline Result<toml::table> read_toml(std::string_view text, const Complaint& bad) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    return bad(fmt::format("line {}: {}", error.source().begin.line, error.description()));
  }
}

// The first key that is none of `known`; nullptr: there is none.
inline const char* unknown_key(const toml::table& table, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : table)
    if (std::find(known.begin(), known.end(), key.str()) == known.end()) return key.data();
  return nullptr;
}

}  // namespace space::tmpl
