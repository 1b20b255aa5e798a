#include "text/template/jinja/builtins/strftime.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"

namespace moeflux::jinja {
namespace {

constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};

std::string_view day_name(const std::tm& time) { return kDays[std::clamp(time.tm_wday, 0, 6)]; }
std::string_view month_name(const std::tm& time) { return kMonths[std::clamp(time.tm_mon, 0, 11)]; }

std::string padded(int value, int width, bool plain) {
  return plain ? fmt::format("{}", value) : fmt::format("{:0{}}", value, width);
}

int hour_of_half_day(const std::tm& time) { return time.tm_hour % 12 == 0 ? 12 : time.tm_hour % 12; }

Result<std::string> directive(char letter, bool plain, const std::tm& time) {
  const int year = time.tm_year + 1900;
  switch (letter) {
    case 'Y': return fmt::format("{}", year);
    case 'y': return padded(((year % 100) + 100) % 100, 2, plain);
    case 'm': return padded(time.tm_mon + 1, 2, plain);
    case 'd': return padded(time.tm_mday, 2, plain);
    case 'e': return plain ? fmt::format("{}", time.tm_mday) : fmt::format("{:2}", time.tm_mday);
    case 'H': return padded(time.tm_hour, 2, plain);
    case 'I': return padded(hour_of_half_day(time), 2, plain);
    case 'M': return padded(time.tm_min, 2, plain);
    case 'S': return padded(time.tm_sec, 2, plain);
    case 'j': return padded(time.tm_yday + 1, 3, plain);
    case 'p': return std::string(time.tm_hour < 12 ? "AM" : "PM");
    case 'A': return std::string(day_name(time));
    case 'a': return std::string(day_name(time).substr(0, 3));
    case 'B': return std::string(month_name(time));
    case 'b':
    case 'h': return std::string(month_name(time).substr(0, 3));
    case 'w': return fmt::format("{}", time.tm_wday);
    case 'u': return fmt::format("{}", time.tm_wday == 0 ? 7 : time.tm_wday);
    case 'F': return fmt::format("{}-{:02}-{:02}", year, time.tm_mon + 1, time.tm_mday);
    case 'T': return fmt::format("{:02}:{:02}:{:02}", time.tm_hour, time.tm_min, time.tm_sec);
    case 'R': return fmt::format("{:02}:{:02}", time.tm_hour, time.tm_min);
    case 'D':
      return fmt::format("{:02}/{:02}/{:02}", time.tm_mon + 1, time.tm_mday, ((year % 100) + 100) % 100);
    case 'z':
    case 'Z': return std::string();  // as for a time without a zone
    case 'n': return std::string("\n");
    case 't': return std::string("\t");
    case '%': return std::string("%");
    default:
      return Error(ErrorCode::unsupported, fmt::format("strftime_now() does not support '%{}'",
                                                       printable(std::string_view(&letter, 1))));
  }
}

}  // namespace

Result<std::string> format_time(std::string_view format, const std::tm& time) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    const bool plain = i + 1 < format.size() && format[i + 1] == '-';
    i += plain ? 2 : 1;
    if (i >= format.size())
      return Error(ErrorCode::corrupt_data, "strftime_now(): the format ends after '%'");
    MF_TRY(const std::string part, directive(format[i], plain, time));
    out += part;
  }
  return out;
}

}  // namespace moeflux::jinja
