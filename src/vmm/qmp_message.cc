#include "vmm/qmp_message.h"

#include <algorithm>
#include <fmt/format.h>

namespace space::vmm {
namespace {

constexpr std::size_t kMostCapabilities = 16;
constexpr const char* kNext = "the VMM is broken or was taken over: delete the sandbox";

tl::unexpected<Error> protocol_error(std::string_view what) {
  return fail(ErrorKind::unavailable, "qmp_protocol", fmt::format("the VMM answered something that is not QMP: {}", what), kNext);
}

// Ids of ours are whole numbers; everything else did not come from a command of ours.
std::optional<std::uint64_t> id_of(const json::object& object) {
  const json::value* id = object.if_contains("id");
  if (!id) return std::nullopt;
  if (id->is_uint64()) return id->get_uint64();
  if (id->is_int64() && id->get_int64() >= 0) return static_cast<std::uint64_t>(id->get_int64());
  return std::nullopt;
}

Result<QmpMessage> greeting_of(const json::object& object) {
  JsonReader outer(object);
  outer.ignore_unknown();
  const json::object* hello = outer.object("QMP");
  TRY_VOID(outer.done());
  if (!hello) return protocol_error("an empty greeting");
  JsonReader inner(*hello, "QMP");
  inner.ignore_unknown();
  const json::object* version = inner.object("version");
  const std::vector<std::string> capabilities = inner.texts("capabilities", kMostCapabilities, 64);
  TRY_VOID(inner.done());
  if (!version) return protocol_error("a greeting without a version");
  JsonReader parts(*version, "QMP.version");
  parts.ignore_unknown();
  const json::object* qemu = parts.object("qemu");
  TRY_VOID(parts.done());
  if (!qemu) return protocol_error("a greeting without a version");
  JsonReader numbers(*qemu, "QMP.version.qemu");
  numbers.ignore_unknown();
  const auto major = numbers.number("major", 0, 1000), minor = numbers.number("minor", 0, 1000), micro = numbers.number("micro", 0, 1000);
  TRY_VOID(numbers.done());
  return QmpGreeting{fmt::format("{}.{}.{}", major, minor, micro),
                     std::find(capabilities.begin(), capabilities.end(), "oob") != capabilities.end()};
}

Result<QmpMessage> error_of(const json::object& object) {
  JsonReader outer(object);
  outer.ignore_unknown();
  const json::object* error = outer.object("error");
  TRY_VOID(outer.done());
  if (!error) return protocol_error("an empty error");
  JsonReader inner(*error, "error");
  inner.ignore_unknown();
  const std::string error_class = inner.text("class", 1, 64);
  const std::string description = inner.text("desc", 0, kMaxQmpLine);
  TRY_VOID(inner.done());
  return QmpError{id_of(object), printable(error_class, 64), printable(description, 500)};
}

Result<QmpMessage> event_of(const json::object& object) {
  JsonReader reader(object);
  reader.ignore_unknown();
  std::string name = reader.text("event", 1, 64);
  const json::object* data = reader.object("data");
  TRY_VOID(reader.done());
  const bool good =
      std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; });
  if (!good) return protocol_error("an event with a name that is none");
  return QmpEvent{std::move(name), data ? *data : json::object{}};
}

Result<QmpMessage> classify(const json::object& object) {
  const int forms = object.contains("QMP") + object.contains("return") + object.contains("error") + object.contains("event");
  if (forms != 1) return protocol_error("a message that is neither greeting, answer, error nor event");
  if (object.contains("QMP")) return greeting_of(object);
  if (object.contains("error")) return error_of(object);
  if (object.contains("event")) return event_of(object);
  const auto id = id_of(object);
  if (!id) return protocol_error("an answer without the number of its command");
  return QmpReturn{*id, object.at("return")};
}

}  // namespace

Result<QmpMessage> parse_qmp_message(std::string_view line) {
  auto object = parse_json_object(line, kMaxQmpLine);
  if (!object) return protocol_error(object.error().message);
  auto message = classify(*object);
  if (!message && message.error().code != "qmp_protocol") return protocol_error(message.error().message);
  return message;
}

Result<std::vector<std::string>> QmpLines::feed(std::string_view bytes) {
  std::vector<std::string> lines;
  while (!failed_ && !bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (pending_.size() + part.size() > kMaxQmpLine) {
      failed_ = true;
      pending_ = {};
      break;
    }
    pending_ += part;
    if (end == std::string_view::npos) return lines;
    bytes.remove_prefix(end + 1);
    if (pending_.ends_with('\r')) pending_.pop_back();
    if (!pending_.empty()) lines.push_back(std::exchange(pending_, {}));
  }
  if (failed_)
    return fail(ErrorKind::unavailable, "qmp_protocol", fmt::format("the VMM sent a line of more than {} bytes", kMaxQmpLine), kNext);
  return lines;
}

std::string printable(std::string_view text, std::size_t limit) {
  if (text.size() > limit) text.remove_prefix(text.size() - limit);
  std::string out(text);
  std::erase(out, '\r');
  for (char& c : out)
    if (c != '\n' && (c < ' ' || c > '~')) c = c == '\t' ? ' ' : '?';
  return out;
}

tl::unexpected<Error> odd_answer(std::string_view what) {
  return fail(ErrorKind::unavailable, "qmp_protocol", fmt::format("the VMM's answer has no {}", what),
              "delete the sandbox; its VMM cannot be trusted");
}

}  // namespace space::vmm
