#!/usr/bin/env python3
"""tools/check_shape.py measures functions and folders, and its lists of exceptions can only shrink."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_shape  # noqa: E402

CPP = """#include "a.h"
#define BRACE(x) \\
  if (x) {
namespace moeflux {
namespace {
constexpr std::array<int, 2> kTable = {1, 2};
struct Pair final {
 public:
  template <class T, class U = std::vector<T>>
  explicit Pair(int a)
      : a_{a},
        b_{std::vector<int>{a}} {
    use('{');
  }
  int get() const { return a_; }

 private:
  int a_ = 0;
  std::vector<int> b_{};
};
enum class Kind { one, two };
}  // namespace

// f() { is a comment
Result<int> Pair::open(std::string_view text,
                       int rows) {
  auto add = [&](int x) {
    return x + rows;
  };
  if (text == "}") {
    return add(1);
  }
  return 0;
}

struct Out operator+(Out a, Out b) {
  return a;
}

TEST(Pair, OpensWhatItWrote) {
  EXPECT_TRUE(true);
}
extern "C" {
int last(void) { return 0; }
}
}  // namespace moeflux
"""


def long_function(lines):
    return "void f() {\n" + "  g();\n" * (lines - 2) + "}\n"


class CheckShape(unittest.TestCase):
    def expect(self, files, *messages):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            self.assertEqual(check_shape.check(root), list(messages))

    def test_finds_the_functions_of_cpp(self):
        self.assertEqual(
            list(check_shape.functions_of(CPP)),
            [("Pair", 9, 6), ("get", 15, 1), ("Pair::open", 25, 10), ("operator+", 36, 3),
             ("TEST(Pair, OpensWhatItWrote)", 40, 3), ("last", 44, 1)],
        )

    def test_limits_functions_of_cpp_and_cuda_to_70_lines(self):
        self.expect(
            {"src/base/a.cpp": "\n" + long_function(71), "src/base/b.cu": long_function(70), "src/base/c.inl": "\n"},
            "src/base/a.cpp:2: f has 71 lines, the limit is 70",
        )

    def test_limits_functions_of_python_to_70_lines(self):
        body = "    pass\n"
        self.expect({"tools/a.py": "def f():\n" + body * 70 + "def g():\n" + body * 69},
                    "tools/a.py:1: f has 71 lines, the limit is 70")

    def test_limits_folders_to_40_code_files(self):
        files = {f"src/base/{number}.cpp": "" for number in range(40)}
        others = {"src/base/CMakeLists.txt": "", "src/base/json/a.cpp": ""}
        self.expect({**files, **others})
        self.expect({**files, "src/base/a.h": ""}, "src/base: 41 code files, the limit is 40: sort them into folders")


if __name__ == "__main__":
    unittest.main()
