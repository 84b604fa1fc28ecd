#include "control/labels.h"

#include <fmt/format.h>

#include "base/encoding.h"

namespace space::control {

bool is_own_label(std::string_view name) { return name.starts_with(kOwnLabels); }

Result<> check_label(std::string_view name) {
  if (!is_own_label(name)) return {};
  return fail(ErrorKind::invalid_argument, "label_reserved",
              fmt::format("the label '{}' cannot be set, changed or taken away: names that begin with '{}' are the server's own",
                          is_utf8(name) ? name.substr(0, 100) : "?", kOwnLabels),
              "choose a name that begins otherwise");
}

}  // namespace space::control
