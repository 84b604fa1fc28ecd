#include "http/authorization.h"

#include <algorithm>

namespace space::http {

std::string bearer(const Headers& headers) {
  const std::string_view value = headers.get("Authorization");
  const std::size_t space = value.find(' ');
  if (space == std::string_view::npos || !equal_no_case(value.substr(0, space), "Bearer")) return {};
  return std::string(value.substr(std::min(value.size(), value.find_first_not_of(' ', space))));
}

}  // namespace space::http
