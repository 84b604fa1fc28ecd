// What a VMM says over QMP, taken apart strictly (docs/interop/qmp-spec of QEMU). The VMM may have been taken over by its guest:
// nothing here trusts a length, a type or an order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace space::vmm {

inline constexpr std::size_t kMaxQmpLine = 128 << 10;  // bytes; the longest answer we ask for is a console of 16 kB in base64

struct QmpGreeting {
  std::string version;       // "7.2.22"
  bool out_of_band = false;  // the capability "oob" is offered
};
struct QmpReturn {
  std::uint64_t id = 0;
  json::value value;
};
struct QmpError {
  std::optional<std::uint64_t> id;  // absent when the VMM could not read the command
  std::string error_class;
  std::string description;  // printable ASCII, at most 500 bytes
};
struct QmpEvent {
  std::string name;  // [A-Z0-9_]{1,64}
  json::object data;
};
using QmpMessage = std::variant<QmpGreeting, QmpReturn, QmpError, QmpEvent>;

// One line without its end. Anything but one of the four forms is unavailable/qmp_protocol.
Result<QmpMessage> parse_qmp_message(std::string_view line);

// Cuts a byte stream into lines; an endless line is an error after kMaxQmpLine bytes, and so is everything after an error.
class QmpLines {
 public:
  Result<std::vector<std::string>> feed(std::string_view bytes);

 private:
  std::string pending_;
  bool failed_ = false;
};

// What an answer that lacks `what` becomes: unavailable/qmp_protocol.
tl::unexpected<Error> odd_answer(std::string_view what);

// Hostile text made safe to show: printable ASCII and line ends stay, everything else becomes '?'; the last `limit` bytes.
std::string printable(std::string_view text, std::size_t limit);

}  // namespace space::vmm
