// Strict reading of JSON that somebody else wrote, on Boost.JSON. Bounded in depth and size; duplicate keys, unknown fields and
// wrong types are errors that name the field ("cpus must be a whole number from 1 to 8").
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space {
namespace json = boost::json;

inline constexpr std::size_t kJsonDepth = 32;

// Parses a whole text. `limit` in bytes.
Result<json::value> parse_json(std::string_view text, std::size_t limit = 1 << 20);
Result<json::object> parse_json_object(std::string_view text, std::size_t limit = 1 << 20);

// Reads the fields of one object one after another and keeps the first error; `done()` returns it, or an error naming a field
// that was never asked for. Every getter returns the default when the field is absent or null, or an error stands already.
//   JsonReader r(object);  auto name = r.text("name", 1, 128);  auto cpus = r.number("cpus", 1, 8, 1);  TRY_VOID(r.done());
class JsonReader {
 public:
  explicit JsonReader(const json::object& object, std::string path = {}) : object_(object), path_(std::move(path)) {}

  std::string text(std::string_view name, std::size_t least, std::size_t most, std::optional<std::string> absent = std::nullopt);
  std::optional<std::string> optional_text(std::string_view name, std::size_t most);
  std::int64_t number(std::string_view name, std::int64_t least, std::int64_t most, std::optional<std::int64_t> absent = std::nullopt);
  std::optional<std::int64_t> optional_number(std::string_view name, std::int64_t least, std::int64_t most);
  bool boolean(std::string_view name, std::optional<bool> absent = std::nullopt);
  std::vector<std::string> texts(std::string_view name, std::size_t most_items, std::size_t most_bytes);  // absent: empty
  std::map<std::string, std::string> text_map(std::string_view name, std::size_t most_items, std::size_t most_bytes);
  const json::object* object(std::string_view name);  // absent: nullptr
  const json::array* array(std::string_view name, std::size_t most_items);
  json::value value(std::string_view name);  // of any type, for another reader; absent: null
  bool has(std::string_view name) const { return object_.contains(name); }
  void ignore_unknown() { ignore_unknown_ = true; }           // for protocols that must accept fields of later versions
  void reject(std::string_view name, std::string_view what);  // a check of the caller's own
  Result<> done();

 private:
  const json::value* take(std::string_view name, bool required);
  const json::object& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
  std::optional<Error> error_;
  bool ignore_unknown_ = false;
};

}  // namespace space
