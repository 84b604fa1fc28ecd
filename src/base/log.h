// Structured logging: one JSON object a line on standard error, so that `grep <operation id>` tells a story.
//   log::info("vmm.loaded", {{"sandbox", id}, {"ms", 12}});
// Values from a guest, a client or a peer are data: they are escaped and cut to 2 kB. Secrets are never passed in.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/result.h"

namespace space::log {

enum class Level { debug, info, warn, error };

struct Field {
  Field(std::string_view k, std::string_view v) : key(k), text(v) {}
  Field(std::string_view k, const char* v) : key(k), text(v) {}
  Field(std::string_view k, const std::string& v) : key(k), text(v) {}
  Field(std::string_view k, std::int64_t v) : key(k), number(v), is_number(true) {}
  Field(std::string_view k, int v) : Field(k, static_cast<std::int64_t>(v)) {}
  Field(std::string_view k, std::size_t v) : Field(k, static_cast<std::int64_t>(v)) {}
  Field(std::string_view k, const Error& e) : key(k), text(describe(e)) {}
  std::string key;
  std::string text;
  std::int64_t number = 0;
  bool is_number = false;
};

// Once at the start of a role, before threads: the role's name stands in every line.
void configure(std::string_view role, Level least);
void write(Level level, std::string_view event, std::initializer_list<Field> fields);

inline void debug(std::string_view event, std::initializer_list<Field> fields = {}) { write(Level::debug, event, fields); }
inline void info(std::string_view event, std::initializer_list<Field> fields = {}) { write(Level::info, event, fields); }
inline void warn(std::string_view event, std::initializer_list<Field> fields = {}) { write(Level::warn, event, fields); }
inline void error(std::string_view event, std::initializer_list<Field> fields = {}) { write(Level::error, event, fields); }

}  // namespace space::log
