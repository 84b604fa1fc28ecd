// Numbers of the stored formats: little-endian, whatever the machine. Private to this folder.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace space::snapshot {

template <class Number>
void put_number(std::string& out, Number number) {
  for (std::size_t i = 0; i < sizeof number; ++i) out.push_back(static_cast<char>(number >> (8 * i)));
}

// The caller has checked that the bytes are there.
template <class Number>
Number get_number(std::string_view bytes, std::size_t at) {
  Number number = 0;
  for (std::size_t i = 0; i < sizeof number; ++i)
    number |= static_cast<Number>(static_cast<Number>(static_cast<unsigned char>(bytes[at + i])) << (8 * i));
  return number;
}

}  // namespace space::snapshot
