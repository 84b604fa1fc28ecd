#include "base/json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <fmt/format.h>

#include "base/encoding.h"

namespace space {
namespace {

// Boost.JSON keeps the last of several fields with one name; two readers that differ there can be played against each other. A
// pass over the events of the parser, with the names of each open object.
class DuplicateFinder {
 public:
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) {
    names_.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t, json::error_code&) {
    names_.pop_back();
    return true;
  }
  bool on_key_part(json::string_view part, std::size_t, json::error_code&) {
    name_.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, std::size_t, json::error_code& error) {
    name_.append(part.data(), part.size());
    const bool fresh = names_.back().insert(std::exchange(name_, {})).second;
    if (!fresh) error = json::error::syntax;
    twice_ = twice_ || !fresh;
    return fresh;
  }
  bool on_array_begin(json::error_code&) { return true; }
  bool on_array_end(std::size_t, json::error_code&) { return true; }
  bool on_string_part(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_string(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t, json::string_view, json::error_code&) { return true; }
  bool on_uint64(std::uint64_t, json::string_view, json::error_code&) { return true; }
  bool on_double(double, json::string_view, json::error_code&) { return true; }
  bool on_bool(bool, json::error_code&) { return true; }
  bool on_null(json::error_code&) { return true; }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }
  bool twice() const { return twice_; }

 private:
  std::vector<std::set<std::string>> names_;
  std::string name_;
  bool twice_ = false;
};

bool has_duplicate(std::string_view text, const json::parse_options& options) {
  json::basic_parser<DuplicateFinder> parser(options);
  json::error_code error;
  parser.write_some(false, text.data(), text.size(), error);
  return parser.handler().twice();
}

}  // namespace

Result<json::value> parse_json(std::string_view text, std::size_t limit) {
  if (text.size() > limit) return fail(ErrorKind::too_large, "body_too_large", fmt::format("the JSON text has more than {} bytes", limit));
  json::parse_options options;
  options.max_depth = kJsonDepth;
  json::error_code error;
  json::value value = json::parse(text, error, {}, options);
  if (error == json::error::too_deep)
    return fail(ErrorKind::invalid_argument, "json_too_deep", fmt::format("the JSON text is nested deeper than {} levels", kJsonDepth));
  if (error) return fail(ErrorKind::invalid_argument, "invalid_json", fmt::format("not a JSON text: {}", error.message()));
  if (has_duplicate(text, options))
    return fail(ErrorKind::invalid_argument, "invalid_json", "the JSON text has a field twice in one object");
  return value;
}

Result<json::object> parse_json_object(std::string_view text, std::size_t limit) {
  TRY(json::value value, parse_json(text, limit));
  if (!value.is_object()) return fail(ErrorKind::invalid_argument, "invalid_json", "the JSON text must be an object");
  return std::move(value.get_object());
}

void JsonReader::reject(std::string_view name, std::string_view what) {
  if (error_) return;
  const std::string field = path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
  error_ =
      Error{ErrorKind::invalid_argument, "invalid_field", fmt::format("{} {}", field, what), "see the request's schema in /openapi.json"};
}

const json::value* JsonReader::take(std::string_view name, bool required) {
  known_.emplace(name);
  const json::value* value = object_.if_contains(name);
  if (value && value->is_null()) value = nullptr;
  if (!value && required) reject(name, "is missing");
  return error_ ? nullptr : value;
}

json::value JsonReader::value(std::string_view name) {
  const json::value* found = take(name, false);
  return found ? *found : json::value();
}

std::string JsonReader::text(std::string_view name, std::size_t least, std::size_t most, std::optional<std::string> absent) {
  const json::value* value = take(name, !absent);
  if (!value) return absent.value_or("");
  if (!value->is_string() || value->get_string().size() < least || value->get_string().size() > most) {
    reject(name, fmt::format("must be a text of {} to {} bytes", least, most));
    return {};
  }
  return std::string(value->get_string());
}

std::optional<std::string> JsonReader::optional_text(std::string_view name, std::size_t most) {
  if (!take(name, false)) return std::nullopt;
  return text(name, 0, most);
}

std::int64_t JsonReader::number(std::string_view name, std::int64_t least, std::int64_t most, std::optional<std::int64_t> absent) {
  const json::value* value = take(name, !absent);
  if (!value) return absent.value_or(0);
  json::error_code error;
  const auto number = value->is_int64() || value->is_uint64() ? value->to_number<std::int64_t>(error) : least - 1;
  if (error || number < least || number > most) {
    reject(name, fmt::format("must be a whole number from {} to {}", least, most));
    return 0;
  }
  return number;
}

std::optional<std::int64_t> JsonReader::optional_number(std::string_view name, std::int64_t least, std::int64_t most) {
  if (!take(name, false)) return std::nullopt;
  return number(name, least, most);
}

bool JsonReader::boolean(std::string_view name, std::optional<bool> absent) {
  const json::value* value = take(name, !absent);
  if (!value) return absent.value_or(false);
  if (!value->is_bool()) {
    reject(name, "must be true or false");
    return false;
  }
  return value->get_bool();
}

std::vector<std::string> JsonReader::texts(std::string_view name, std::size_t most_items, std::size_t most_bytes) {
  std::vector<std::string> out;
  const json::array* items = array(name, most_items);
  if (!items) return out;
  for (const json::value& item : *items) {
    if (!item.is_string() || item.get_string().size() > most_bytes) {
      reject(name, fmt::format("must hold texts of at most {} bytes", most_bytes));
      return {};
    }
    out.emplace_back(item.get_string());
  }
  return out;
}

std::map<std::string, std::string> JsonReader::text_map(std::string_view name, std::size_t most_items, std::size_t most_bytes) {
  std::map<std::string, std::string> out;
  const json::object* items = object(name);
  if (!items) return out;
  if (items->size() > most_items) {
    reject(name, fmt::format("must have at most {} entries", most_items));
    return {};
  }
  for (const auto& item : *items) {
    if (!item.value().is_string() || item.value().get_string().size() > most_bytes || item.key().size() > most_bytes) {
      reject(name, fmt::format("must map names to texts of at most {} bytes", most_bytes));
      return {};
    }
    out.emplace(item.key(), item.value().get_string());
  }
  return out;
}

const json::object* JsonReader::object(std::string_view name) {
  const json::value* value = take(name, false);
  if (value && !value->is_object()) {
    reject(name, "must be an object");
    return nullptr;
  }
  return value ? &value->get_object() : nullptr;
}

const json::array* JsonReader::array(std::string_view name, std::size_t most_items) {
  const json::value* value = take(name, false);
  if (value && (!value->is_array() || value->get_array().size() > most_items)) {
    reject(name, fmt::format("must be a list of at most {} items", most_items));
    return nullptr;
  }
  return value ? &value->get_array() : nullptr;
}

Result<> JsonReader::done() {
  if (!error_ && !ignore_unknown_)
    for (const auto& item : object_)
      if (!known_.contains(std::string_view(item.key()))) {
        reject(std::string_view(item.key()).substr(0, 64), "is not a field of this request");
        break;
      }
  if (error_) return tl::unexpected(*error_);
  return {};
}

}  // namespace space
