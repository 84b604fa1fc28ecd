#include "agent/envd_proto.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <fmt/format.h>
#include <optional>
#include <span>

#include "base/encoding.h"

namespace space::agent::proto {

enum class Kind { text, bytes, boolean, uint32, sint32, int64, enumeration, message, timestamp, map };

struct Name {
  std::int64_t number;
  std::string_view name;
};

struct Field {
  std::uint32_t number;
  std::string_view name;  // as JSON has it
  Kind kind = Kind::text;
  const Message* message = nullptr;
  std::span<const Name> names = {};
  bool repeated = false;
};

struct Message {
  std::span<const Field> fields;
};

namespace {

constexpr int kDeepest = 8;
constexpr std::size_t kMostElements = 100'000;

// The services' definitions (process.proto, filesystem.proto of envd 0.6).
constexpr std::array kSignals = {Name{15, "SIGNAL_SIGTERM"}, Name{9, "SIGNAL_SIGKILL"}};
constexpr std::array kFileTypes = {Name{1, "FILE_TYPE_FILE"}, Name{2, "FILE_TYPE_DIRECTORY"}, Name{3, "FILE_TYPE_SYMLINK"}};
constexpr std::array kEventTypes = {Name{1, "EVENT_TYPE_CREATE"}, Name{2, "EVENT_TYPE_WRITE"}, Name{3, "EVENT_TYPE_REMOVE"},
                                    Name{4, "EVENT_TYPE_RENAME"}, Name{5, "EVENT_TYPE_CHMOD"}};

constexpr Message kEmpty{};
constexpr std::array kSizeFields = {Field{1, "cols", Kind::uint32}, Field{2, "rows", Kind::uint32}};
constexpr Message kSize{kSizeFields};
constexpr std::array kPtyFields = {Field{1, "size", Kind::message, &kSize}};
constexpr Message kPty{kPtyFields};
constexpr std::array kConfigFields = {Field{1, "cmd"}, Field{.number = 2, .name = "args", .repeated = true}, Field{3, "envs", Kind::map},
                                      Field{4, "cwd"}};
constexpr Message kConfig{kConfigFields};
constexpr std::array kSelectorFields = {Field{1, "pid", Kind::uint32}, Field{2, "tag"}};
constexpr Message kSelector{kSelectorFields};
constexpr std::array kInputFields = {Field{1, "stdin", Kind::bytes}, Field{2, "pty", Kind::bytes}};
constexpr Message kInput{kInputFields};

constexpr std::array kStartFields = {Field{1, "process", Kind::message, &kConfig}, Field{2, "pty", Kind::message, &kPty}, Field{3, "tag"},
                                     Field{4, "stdin", Kind::boolean}};
constexpr Message kStart{kStartFields};
constexpr std::array kSelectFields = {Field{1, "process", Kind::message, &kSelector}};
constexpr Message kSelect{kSelectFields};
constexpr std::array kUpdateFields = {Field{1, "process", Kind::message, &kSelector}, Field{2, "pty", Kind::message, &kPty}};
constexpr Message kUpdate{kUpdateFields};
constexpr std::array kSendInputFields = {Field{1, "process", Kind::message, &kSelector}, Field{2, "input", Kind::message, &kInput}};
constexpr Message kSendInput{kSendInputFields};
constexpr std::array kSignalFields = {Field{1, "process", Kind::message, &kSelector},
                                      Field{2, "signal", Kind::enumeration, nullptr, kSignals}};
constexpr Message kSignal{kSignalFields};
constexpr std::array kStreamDataFields = {Field{2, "input", Kind::message, &kInput}};
constexpr Message kStreamData{kStreamDataFields};
constexpr std::array kStreamInputFields = {Field{1, "start", Kind::message, &kSelect}, Field{2, "data", Kind::message, &kStreamData},
                                           Field{3, "keepalive", Kind::message, &kEmpty}};
constexpr Message kStreamInput{kStreamInputFields};

constexpr std::array kPidFields = {Field{1, "pid", Kind::uint32}};
constexpr Message kPid{kPidFields};
constexpr std::array kOutputFields = {Field{1, "stdout", Kind::bytes}, Field{2, "stderr", Kind::bytes}, Field{3, "pty", Kind::bytes}};
constexpr Message kOutput{kOutputFields};
constexpr std::array kEndFields = {Field{1, "exitCode", Kind::sint32}, Field{2, "exited", Kind::boolean}, Field{3, "status"},
                                   Field{4, "error"}};
constexpr Message kEnd{kEndFields};
constexpr std::array kProcessEventFields = {Field{1, "start", Kind::message, &kPid}, Field{2, "data", Kind::message, &kOutput},
                                            Field{3, "end", Kind::message, &kEnd}, Field{4, "keepalive", Kind::message, &kEmpty}};
constexpr Message kProcessEvent{kProcessEventFields};
constexpr std::array kEventFields = {Field{1, "event", Kind::message, &kProcessEvent}};
constexpr Message kEvent{kEventFields};
constexpr std::array kInfoFields = {Field{1, "config", Kind::message, &kConfig}, Field{2, "pid", Kind::uint32}, Field{3, "tag"}};
constexpr Message kInfo{kInfoFields};
constexpr std::array kListFields = {Field{1, "processes", Kind::message, &kInfo, {}, true}};
constexpr Message kList{kListFields};

constexpr std::array kEntryFields = {Field{1, "name"},
                                     Field{2, "type", Kind::enumeration, nullptr, kFileTypes},
                                     Field{3, "path"},
                                     Field{4, "size", Kind::int64},
                                     Field{5, "mode", Kind::uint32},
                                     Field{6, "permissions"},
                                     Field{7, "owner"},
                                     Field{8, "group"},
                                     Field{9, "modifiedTime", Kind::timestamp},
                                     Field{10, "symlinkTarget"},
                                     Field{11, "metadata", Kind::map},
                                     Field{12, "isSymlink", Kind::boolean}};
constexpr Message kEntry{kEntryFields};
constexpr std::array kOneEntryFields = {Field{1, "entry", Kind::message, &kEntry}};
constexpr Message kOneEntry{kOneEntryFields};
constexpr std::array kEntriesFields = {Field{1, "entries", Kind::message, &kEntry, {}, true}};
constexpr Message kEntries{kEntriesFields};
constexpr std::array kPathFields = {Field{1, "path"}};
constexpr Message kPath{kPathFields};
constexpr std::array kMoveFields = {Field{1, "source"}, Field{2, "destination"}};
constexpr Message kMove{kMoveFields};
constexpr std::array kListDirFields = {Field{1, "path"}, Field{2, "depth", Kind::uint32}};
constexpr Message kListDir{kListDirFields};
constexpr std::array kWatchFields = {Field{1, "path"}, Field{2, "recursive", Kind::boolean}, Field{3, "includeEntry", Kind::boolean},
                                     Field{4, "allowNetworkMounts", Kind::boolean}};
constexpr Message kWatch{kWatchFields};
constexpr std::array kFileEventFields = {Field{1, "name"}, Field{2, "type", Kind::enumeration, nullptr, kEventTypes},
                                         Field{3, "entry", Kind::message, &kEntry}};
constexpr Message kFileEvent{kFileEventFields};
constexpr std::array kWatchEventFields = {Field{1, "start", Kind::message, &kEmpty}, Field{2, "filesystem", Kind::message, &kFileEvent},
                                          Field{3, "keepalive", Kind::message, &kEmpty}};
constexpr Message kWatchEvent{kWatchEventFields};
constexpr std::array kWatcherFields = {Field{1, "watcherId"}};
constexpr Message kWatcher{kWatcherFields};
constexpr std::array kFileEventsFields = {Field{1, "events", Kind::message, &kFileEvent, {}, true}};
constexpr Message kFileEvents{kFileEventsFields};

struct Method {
  std::string_view path;
  const Message *request, *answer;
};
constexpr std::array kMethods = {Method{"/process.Process/Start", &kStart, &kEvent},
                                 Method{"/process.Process/Connect", &kSelect, &kEvent},
                                 Method{"/process.Process/List", &kEmpty, &kList},
                                 Method{"/process.Process/StreamInput", &kStreamInput, &kEmpty},
                                 Method{"/process.Process/SendInput", &kSendInput, &kEmpty},
                                 Method{"/process.Process/CloseStdin", &kSelect, &kEmpty},
                                 Method{"/process.Process/SendSignal", &kSignal, &kEmpty},
                                 Method{"/process.Process/Update", &kUpdate, &kEmpty},
                                 Method{"/filesystem.Filesystem/Stat", &kPath, &kOneEntry},
                                 Method{"/filesystem.Filesystem/MakeDir", &kPath, &kOneEntry},
                                 Method{"/filesystem.Filesystem/Move", &kMove, &kOneEntry},
                                 Method{"/filesystem.Filesystem/ListDir", &kListDir, &kEntries},
                                 Method{"/filesystem.Filesystem/Remove", &kPath, &kEmpty},
                                 Method{"/filesystem.Filesystem/WatchDir", &kWatch, &kWatchEvent},
                                 Method{"/filesystem.Filesystem/CreateWatcher", &kWatch, &kWatcher},
                                 Method{"/filesystem.Filesystem/GetWatcherEvents", &kWatcher, &kFileEvents},
                                 Method{"/filesystem.Filesystem/RemoveWatcher", &kWatcher, &kEmpty}};

const Method* find_method(std::string_view path) {
  const auto found = std::find_if(kMethods.begin(), kMethods.end(), [&](const Method& method) { return method.path == path; });
  return found == kMethods.end() ? nullptr : &*found;
}

tl::unexpected<Error> bad(std::string_view why) {
  return fail(ErrorKind::invalid_argument, "invalid_argument", fmt::format("the message is no valid protobuf: {}", why));
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  bool at_end() const { return rest_.empty(); }

  Result<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return bad("a number is cut off");
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (!(byte & 0x80U)) return value;
    }
    return bad("a number has more than ten bytes");
  }

  Result<std::string_view> piece() {
    TRY(const std::uint64_t size, varint());
    if (size > rest_.size()) return bad("a field is cut off");
    const std::string_view out = rest_.substr(0, static_cast<std::size_t>(size));
    rest_.remove_prefix(out.size());
    return out;
  }

  Result<> skip(unsigned wire_type) {
    const std::size_t fixed = wire_type == 1 ? 8 : wire_type == 5 ? 4 : 0;
    if (wire_type == 0) return varint().map([](std::uint64_t) {});
    if (wire_type == 2) return piece().map([](std::string_view) {});
    if (fixed == 0) return bad("a field has an unknown wire type");
    if (rest_.size() < fixed) return bad("a field is cut off");
    rest_.remove_prefix(fixed);
    return {};
  }

 private:
  std::string_view rest_;
};

Result<json::object> read(const Message& message, std::string_view bytes, int depth, std::size_t& elements);

Result<std::string> text(std::string_view bytes) {
  if (!is_utf8(bytes)) return bad("a text is not UTF-8");
  return std::string(bytes);
}

Result<std::pair<std::string, std::string>> map_entry(std::string_view bytes) {
  Reader reader(bytes);
  std::pair<std::string, std::string> out;
  while (!reader.at_end()) {
    TRY(const std::uint64_t tag, reader.varint());
    if ((tag & 7) != 2 || (tag >> 3) > 2 || (tag >> 3) == 0) {
      TRY_VOID(reader.skip(static_cast<unsigned>(tag & 7)));
      continue;
    }
    TRY(const std::string_view piece, reader.piece());
    TRY(std::string value, text(piece));
    ((tag >> 3) == 1 ? out.first : out.second) = std::move(value);
  }
  return out;
}

json::value number(const Field& field, std::uint64_t raw) {
  switch (field.kind) {
    case Kind::boolean:
      return raw != 0;
    case Kind::sint32: {
      const auto low = static_cast<std::uint32_t>(raw);
      return static_cast<std::int64_t>(static_cast<std::int32_t>((low >> 1) ^ (~(low & 1) + 1)));
    }
    case Kind::int64:
      return json::value(std::to_string(static_cast<std::int64_t>(raw)));
    case Kind::enumeration:
      for (const Name& name : field.names)
        if (name.number == static_cast<std::int64_t>(raw)) return json::value(name.name);
      return static_cast<std::int64_t>(static_cast<std::int32_t>(raw));
    default:
      return static_cast<std::uint64_t>(static_cast<std::uint32_t>(raw));
  }
}

bool is_number(Kind kind) {
  return kind == Kind::boolean || kind == Kind::uint32 || kind == Kind::sint32 || kind == Kind::int64 || kind == Kind::enumeration;
}

Result<> read_field(const Field& field, Reader& reader, json::object& out, int depth, std::size_t& elements) {
  if (++elements > kMostElements) return bad("it has too many fields");
  if (is_number(field.kind)) {
    TRY(const std::uint64_t raw, reader.varint());
    out[field.name] = number(field, raw);
    return {};
  }
  TRY(const std::string_view piece, reader.piece());
  if (field.kind == Kind::map) {
    TRY(const auto entry, map_entry(piece));
    if (!out.contains(field.name)) out[field.name] = json::object();
    out[field.name].get_object()[entry.first] = entry.second;
    return {};
  }
  json::value value;
  if (field.kind == Kind::message) {
    TRY(value, read(*field.message, piece, depth + 1, elements));
  } else if (field.kind == Kind::bytes) {
    value = base64_encode(as_bytes(piece));
  } else if (field.kind == Kind::text) {
    TRY(value, text(piece));
  } else {
    return bad("a time is not taken");  // no request has one
  }
  if (!field.repeated) {
    out[field.name] = std::move(value);
    return {};
  }
  if (!out.contains(field.name)) out[field.name] = json::array();
  out[field.name].get_array().push_back(std::move(value));
  return {};
}

Result<json::object> read(const Message& message, std::string_view bytes, int depth, std::size_t& elements) {
  if (depth > kDeepest) return bad("it is too deep");
  json::object out;
  Reader reader(bytes);
  while (!reader.at_end()) {
    TRY(const std::uint64_t tag, reader.varint());
    const auto wire_type = static_cast<unsigned>(tag & 7);
    if (tag >> 3 == 0) return bad("a field has the number 0");
    const auto field = std::find_if(message.fields.begin(), message.fields.end(), [&](const Field& one) { return one.number == tag >> 3; });
    if (field == message.fields.end() || wire_type != (is_number(field->kind) ? 0U : 2U)) {
      TRY_VOID(reader.skip(wire_type));
      continue;
    }
    TRY_VOID(read_field(*field, reader, out, depth, elements));
  }
  return out;
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_piece(std::string& out, std::uint32_t number, std::string_view piece) {
  put_varint(out, std::uint64_t{number} << 3 | 2);
  put_varint(out, piece.size());
  out += piece;
}

std::int64_t whole(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_uint64()) return static_cast<std::int64_t>(value.get_uint64());
  std::int64_t out = 0;
  if (value.is_string()) {
    const std::string_view text = value.get_string();
    const bool negative = text.starts_with('-');
    for (const char c : text.substr(negative ? 1 : 0))
      if (c >= '0' && c <= '9' && out < INT64_MAX / 10 - 1) out = out * 10 + (c - '0');
    if (negative) out = -out;
  }
  return out;
}

std::uint32_t zigzag(std::int32_t value) { return static_cast<std::uint32_t>(value) << 1 ^ static_cast<std::uint32_t>(value >> 31); }

std::uint64_t number_of(const Field& field, std::string_view name) {
  const auto found = std::find_if(field.names.begin(), field.names.end(), [&](const Name& one) { return one.name == name; });
  return found == field.names.end() ? 0 : static_cast<std::uint64_t>(found->number);
}

void put_number(std::string& out, const Field& field, const json::value& value) {
  std::uint64_t raw = 0;
  if (field.kind == Kind::boolean)
    raw = value.is_bool() && value.get_bool() ? 1 : 0;
  else if (field.kind == Kind::sint32)
    raw = zigzag(static_cast<std::int32_t>(whole(value)));
  else if (field.kind == Kind::enumeration && value.is_string())
    raw = number_of(field, value.get_string());
  else
    raw = static_cast<std::uint64_t>(whole(value));
  put_varint(out, std::uint64_t{field.number} << 3);
  put_varint(out, raw);
}

// google.protobuf.Timestamp (seconds = 1, nanos = 2) of a time as rfc3339() writes it: "2026-01-02T03:04:05.123Z".
std::string timestamp(std::string_view text) {
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:dd.dddZ";
  std::string out;
  if (text.size() != kForm.size()) return out;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (kForm[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != kForm[i]) return out;
  const auto part = [&](std::size_t at, std::size_t size) {
    int value = 0;
    for (const char c : text.substr(at, size)) value = value * 10 + (c - '0');
    return value;
  };
  const std::chrono::sys_days day = std::chrono::year(part(0, 4)) / std::chrono::month(static_cast<unsigned>(part(5, 2))) /
                                    std::chrono::day(static_cast<unsigned>(part(8, 2)));
  const std::int64_t seconds = std::int64_t{day.time_since_epoch().count()} * 86'400 + part(11, 2) * 3600 + part(14, 2) * 60 + part(17, 2);
  out += '\x08';
  put_varint(out, static_cast<std::uint64_t>(seconds));
  out += '\x10';
  put_varint(out, static_cast<std::uint64_t>(part(20, 3)) * 1'000'000);
  return out;
}

void put_value(std::string& out, const Field& field, const json::value& value) {
  if (is_number(field.kind)) return put_number(out, field, value);
  if (field.kind == Kind::message) {
    if (value.is_object()) put_piece(out, field.number, encode(*field.message, value.get_object()));
  } else if (field.kind == Kind::map) {
    if (value.is_object())
      for (const auto& [name, one] : value.get_object()) {
        std::string entry;
        put_piece(entry, 1, name);
        if (one.is_string()) put_piece(entry, 2, one.get_string());
        put_piece(out, field.number, entry);
      }
  } else if (value.is_string()) {
    const std::string_view text = value.get_string();
    if (field.kind == Kind::bytes)
      put_piece(out, field.number, base64_decode(text).value_or(std::string()));
    else if (field.kind == Kind::timestamp)
      put_piece(out, field.number, timestamp(text));
    else
      put_piece(out, field.number, text);
  }
}

}  // namespace

const Message* request_of(std::string_view path) {
  const Method* method = find_method(path);
  return method ? method->request : nullptr;
}

const Message* answer_of(std::string_view path) {
  const Method* method = find_method(path);
  return method ? method->answer : nullptr;
}

Result<json::object> decode(const Message& message, std::string_view bytes) {
  std::size_t elements = 0;
  return read(message, bytes, 0, elements);
}

std::string encode(const Message& message, const json::object& object) {
  std::string out;
  for (const Field& field : message.fields) {
    const json::value* value = object.if_contains(field.name);
    if (!value || value->is_null()) continue;
    if (field.repeated && value->is_array())
      for (const json::value& one : value->get_array()) put_value(out, field, one);
    else
      put_value(out, field, *value);
  }
  return out;
}

}  // namespace space::agent::proto
