// Operations with a rounding of their own, by the rounding mode of the processor.

#include <cfenv>
#include <cmath>

namespace {

template <typename T>
T computed(char op, volatile T a, volatile T b, volatile T c) {
  switch (op) {
    case '+': return a + b;
    case '-': return a - b;
    case '*': return a * b;
    case '/': return a / b;
    case 'f': return std::fma(static_cast<T>(a), static_cast<T>(b), static_cast<T>(c));
    default: return std::sqrt(static_cast<T>(a));
  }
}

template <typename T>
T rounded(char op, int mode, T a, T b, T c) {
  static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};
  std::fesetround(modes[mode]);
  volatile T result = computed<T>(op, a, b, c);
  std::fesetround(FE_TONEAREST);
  return result;
}

}  // namespace

float tilec_rounded(char op, int mode, float a, float b, float c) noexcept { return rounded(op, mode, a, b, c); }
double tilec_rounded(char op, int mode, double a, double b, double c) noexcept { return rounded(op, mode, a, b, c); }
