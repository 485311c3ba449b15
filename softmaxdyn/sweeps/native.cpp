// Exact vanilla and natural policy gradient on bandits: what rows.py computes, with the formulas of policy.py and
// change.py. Rows (run, state) lie along the lanes of vectors, actions one after another; a tile of rows takes all
// steps of a call before the next one. Lanes never mix before a row's numbers are done, products and sums are fused
// only where it says `fma`, and the order in which the states of a run are added depends on nothing but their number:
// so a run has the same bits in any company.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "xla/ffi/api/ffi.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

namespace ffi = xla::ffi;

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define WIDE 512
constexpr int kBytes = 64;
#elif defined(__AVX2__) && defined(__FMA__)
#define WIDE 256
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif

// The polynomials go through the function at the Chebyshev nodes; the constant term comes first.
struct Double {
    using R = double;
    typedef double V __attribute__((vector_size(kBytes)));
    typedef int64_t I __attribute__((vector_size(kBytes)));
    static constexpr int64_t kOne = 0x3ff0000000000000, kHalfRoot = 0x3fe6a09e667f3bcd, kFraction = 0xfffffffffffff;
    static constexpr int kFractionBits = 52, kBias = 1023;
    static constexpr R kRound = 6755399441055744.0, kLow = -1000.0, kFlush = -707.7, kAbsent = -1e305;
    static constexpr R kLog2High = 6.93147180369123816490e-01, kLog2Low = 1.90821492927058770002e-10;
    // log 2 is a number of few digits and the rest. Polynomials:
    // (eˣ − 1 − x)/x² for |x| ≤ ½ log 2, for |x| ≤ ½; (2 artanh s − 2s)/s³ in s² for |s| ≤ (√2−1)/(√2+1);
    // log(1 + x)/x for 0 ≤ x ≤ e^½ − 1½
    static constexpr R kExp[] = {0.5, 0.16666666666666667, 0.041666666666624128, 0.0083333333333300618,
                                 0.0013888888917213717, 0.00019841269863053617, 2.4801521295954375e-5,
                                 2.7557268459997065e-6, 2.7620088445409748e-7, 2.5100385495510319e-8};
    static constexpr R kPsi[] = {0.5, 0.16666666666666667, 0.041666666666667062, 0.0083333333333333597,
                                 0.0013888888888704549, 0.00019841269841146992, 2.4801587616145413e-5,
                                 2.7557319433620243e-6, 2.7557076636642723e-7, 2.5051946709721621e-8,
                                 2.0962955815976076e-9, 1.6116496514371546e-10};
    static constexpr R kLog[] = {0.66666666666666697, 0.39999999999898891, 0.28571428626253838, 0.22222211089379496,
                                 0.18182892432536871, 0.15331611722055008, 0.14617807153417325};
    static constexpr R kLog1p[] = {1.0, -0.4999999999999747, 0.33333333332652296, -0.24999999928314215,
                                   0.19999996118816392, -0.16666543604396936, 0.14283268130677288,
                                   -0.12468500009581665, 0.10846566424192859, -0.085786200324018474,
                                   0.044538921393017674};
};

struct Single {
    using R = float;
    typedef float V __attribute__((vector_size(kBytes)));
    typedef int32_t I __attribute__((vector_size(kBytes)));
    static constexpr int32_t kOne = 0x3f800000, kHalfRoot = 0x3f3504f3, kFraction = 0x7fffff;
    static constexpr int kFractionBits = 23, kBias = 127;
    static constexpr R kRound = 12582912.0f, kLow = -200.0f, kFlush = -86.7f, kAbsent = -1e37f;
    static constexpr R kLog2High = 6.9313812256e-01f, kLog2Low = 9.0580006145e-06f;
    static constexpr R kExp[] = {0.5f, 0.16666577f, 0.0416665546f, 0.00836317905f, 0.00139261836f};
    static constexpr R kPsi[] = {0.5f,           0.166666671f,  0.0416666671f, 0.00833318207f,
                                 0.00138887377f, 0.000199621762f, 2.49224364e-5f};
    static constexpr R kLog[] = {0.666666851f, 0.399887577f, 0.295809859f};
    static constexpr R kLog1p[] = {1.0f, -0.499999745f, 0.333313203f, -0.249412389f, 0.192109588f, -0.115774435f};
};

#if WIDE == 512
inline Double::V fma(Double::V a, Double::V b, Double::V c) { return _mm512_fmadd_pd(a, b, c); }
inline Single::V fma(Single::V a, Single::V b, Single::V c) { return _mm512_fmadd_ps(a, b, c); }
inline Double::V scaled(Double::V x, Double::V n) { return _mm512_scalef_pd(x, n); }
inline Single::V scaled(Single::V x, Single::V n) { return _mm512_scalef_ps(x, n); }
// 1/x by Newton's steps from 14 digits: a division takes longer than all of a row's other arithmetic.
inline Double::V inverse_of(Double::V x) {
    Double::V y = _mm512_rcp14_pd(x);
    y = fma(fma(-x, y, Double::V{} + 1.0), y, y);
    return fma(fma(-x, y, Double::V{} + 1.0), y, y);
}
inline Single::V inverse_of(Single::V x) {
    Single::V y = _mm512_rcp14_ps(x);
    return fma(fma(-x, y, Single::V{} + 1.0f), y, y);
}
inline double total(Double::V x) { return _mm512_reduce_add_pd(x); }
inline float total(Single::V x) { return _mm512_reduce_add_ps(x); }
inline bool any_above(Double::V x, double y) { return _mm512_cmp_pd_mask(x, _mm512_set1_pd(y), _CMP_GT_OQ) != 0; }
inline bool any_above(Single::V x, float y) { return _mm512_cmp_ps_mask(x, _mm512_set1_ps(y), _CMP_GT_OQ) != 0; }
#else
#if WIDE == 256
inline Double::V fma(Double::V a, Double::V b, Double::V c) { return _mm256_fmadd_pd(a, b, c); }
inline Single::V fma(Single::V a, Single::V b, Single::V c) { return _mm256_fmadd_ps(a, b, c); }
#elif defined(__aarch64__)
inline Double::V fma(Double::V a, Double::V b, Double::V c) {
    return (Double::V)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}
inline Single::V fma(Single::V a, Single::V b, Single::V c) {
    return (Single::V)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
#else
template <class V>
inline V fma(V a, V b, V c) {
    return a * b + c;
}
#endif
template <class V>
inline V inverse_of(V x) {
    return (V{} + 1) / x;
}
template <class V>
inline auto total(V x) {
    auto sum = x[0];
    for (size_t lane = 1; lane < sizeof(V) / sizeof(sum); lane++) sum += x[lane];
    return sum;
}
template <class V>
inline bool any_above(V x, decltype(V{}[0] + 0) y) {
    bool found = false;
    for (size_t lane = 0; lane < sizeof(V) / sizeof(x[0]); lane++) found |= x[lane] > y;
    return found;
}
#endif

// XLA rounds subnormal numbers to 0 on x86; so does this, whatever thread it runs on.
struct FlushSubnormals {
#if defined(__x86_64__)
    unsigned before = _mm_getcsr();
    FlushSubnormals() { _mm_setcsr(before | 0x8040); }
    ~FlushSubnormals() { _mm_setcsr(before); }
#endif
};

// The sums that are asked for, as bits, in the order of SUMS in rows.py.
enum Field { kEntropy, kChange, kLemma1, kTheorem1, kTheorem2, kRemainder, kBound, kDivergence, kReturn, kCovariance };
constexpr int kFields = 10, kHeld = 16;  // recorded steps that are held before they are added to the runs

template <class T>
struct Math {
    using R = typename T::R;
    using V = typename T::V;
    using I = typename T::I;
    static constexpr int kLanes = kBytes / sizeof(R);

    static V all(R x) { return V{} + x; }
    static V larger(V a, V b) { return a > b ? a : b; }
    static V smaller(V a, V b) { return a < b ? a : b; }
    static V size(V x) { return larger(x, -x); }

    template <int N>
    static V polynomial(const R (&c)[N], V x) {
        V sum = all(c[N - 1]);
        for (int n = N - 2; n >= 0; n--) sum = fma(sum, x, all(c[n]));
        return sum;
    }

    // eˣ for x below the overflow; 0 where it is subnormal.
    static V exp(V x) {
        x = larger(x, all(T::kLow));
        V shifted = fma(x, all(R(1.4426950408889634074)), all(T::kRound)), n = shifted - T::kRound;
        V r = fma(n, all(-T::kLog2Low), fma(n, all(-T::kLog2High), x));
        V y = fma(r * r, polynomial(T::kExp, r), r) + R(1);
#if WIDE == 512
        return scaled(y, n);
#else
        V grown = (V)((I)y + ((I)shifted << T::kFractionBits));
        return x < T::kFlush ? V{} : grown;
#endif
    }

    // log u for normal u > 0, by u = 2ᵏ m with √½ ≤ m < √2 and s = (m − 1)/(m + 1).
    static V log(V u) {
        I bits = (I)u + (T::kOne - T::kHalfRoot);
        V k = __builtin_convertvector((bits >> T::kFractionBits) - T::kBias, V);
        V f = (V)((bits & T::kFraction) + T::kHalfRoot) - R(1);
        V s = f * inverse_of(f + R(2)), z = s * s, half = f * f * R(0.5);
        V tail = s * (half + z * polynomial(T::kLog, z));
        return fma(k, all(T::kLog2High), (tail + k * T::kLog2Low) - half + f);
    }

    // log(1 + s) for s ≥ 0, where inverse = 1/(1 + s).
    static V log1p(V s, V inverse) {
        V u = s + R(1), kept = u - R(1);
        return log(u) + ((R(1) - (u - kept)) + (s - kept)) * inverse;
    }

    // What rounding took from x = value − top.
    static V lost(V value, V top, V x) {
        V kept = value - x;
        return (kept - top) + (value - (x + kept));
    }

    static V corrected(V e, V lost) { return fma(e, smaller(larger(lost, all(R(-0.1))), all(R(0.1))), e); }
    static V small_psi(V x) { return x * x * polynomial(T::kPsi, x); }
};

// ΔH = −covariance + remainder and KL(π'‖π) of a step.
template <class T>
struct Change {
    typename T::V change, covariance, remainder, divergence;
};

template <class T, int U>
struct Tile : Math<T> {
    using M = Math<T>;
    using typename M::I;
    using typename M::R;
    using typename M::V;
    using M::all;
    static constexpr int kRows = U * M::kLanes;

    int actions, fields, level;
    bool natural;
    std::vector<V> memory;
    V *z, *r, *x, *p, *delta, *alone, *after, *low;  // [K][U]; `alone` is δ/A without π: natural PG's step size
    V weight[U], step_size[U], scale[U], fixed[U], constant[U];  // scale: δ/(π A); fixed: `alone` at the mode
    V mode[U], top[U], top_reward[U];
    V inverse[U], mean_x[U], log_sum[U], entropy[U], top_delta[U], mean_delta[U], gain[U], covariance[U], value[U];
    V reward[U], flat[U];  // of the mode; Cov(log π, π A)
    std::vector<V> held;  // [F][kHeld][U]
    int count = 0;

    Tile(int actions, bool natural, int fields) : actions(actions), fields(fields), natural(natural) {
        level = fields & (1 << kChange | 1 << kRemainder | 1 << kDivergence)                 ? 4
                : fields & (1 << kBound | 1 << kTheorem2 | 1 << kReturn | 1 << kCovariance) ? 3
                : fields & (1 << kLemma1 | 1 << kTheorem1)                                  ? 2
                                                                                            : 1;
        memory.assign(size_t(8) * actions * U, V{});
        held.assign(size_t(kFields) * kHeld * U, V{});
        V** tables[] = {&z, &r, &x, &p, &delta, &alone, &after, &low};
        for (int n = 0; n < 8; n++) *tables[n] = memory.data() + size_t(n) * actions * U;
    }

    // A row in its lane; a tile that is not full repeats a row with weight 0.
    void load(int lane, const R* logits, const R* rewards, R weight_of, R size_of) {
        int u = lane / M::kLanes, l = lane % M::kLanes, live = 0;
        for (int k = 0; k < actions; k++) {
            bool masked = logits[k] == -std::numeric_limits<R>::infinity();
            live += !masked;
            z[k * U + u][l] = masked ? T::kAbsent : logits[k];
            r[k * U + u][l] = rewards[k];
            alone[k * U + u][l] = natural && !masked ? size_of : 0;
        }
        weight[u][l] = weight_of, step_size[u][l] = size_of;
        scale[u][l] = natural ? 0 : size_of * weight_of, fixed[u][l] = natural ? size_of : 0;
        constant[u][l] = R(0.125) + std::log(R(std::max(live - 1, 1))) / R(12 * 1.7320508075688772935);
    }

    void store(int lane, R* logits) const {
        for (int k = 0; k < actions; k++) {
            R value = z[k * U + lane / M::kLanes][lane % M::kLanes];
            logits[k] = value < T::kAbsent / 2 ? -std::numeric_limits<R>::infinity() : value;
        }
    }

    static void find_top(V value, V reward, V k, V& top, V& top_reward, V& mode) {
        auto above = value > top;
        mode = above ? k : mode;
        top_reward = above ? reward : top_reward;
        top = above ? value : top;
    }

    void begin() {
        for (int u = 0; u < U; u++) mode[u] = V{}, top[u] = z[u], top_reward[u] = r[u];
        for (int k = 1; k < actions; k++)
            for (int u = 0; u < U; u++) find_top(z[k * U + u], r[k * U + u], all(R(k)), top[u], top_reward[u], mode[u]);
    }

    // One step of all rows: to x and eˣ, then to δ and the new mode. `Seen` is the level of what is to be recorded.
    template <int Seen>
    void step() {
        V *const __restrict z = this->z, *const __restrict p = this->p, *const __restrict r = this->r;
        V *const __restrict x = this->x, *const __restrict delta = this->delta, *const __restrict low = this->low;
        const V* const __restrict alone = this->alone;
        V sum[U], gained[U], mean_of_x[U], height[U], own[U], place[U];
        for (int u = 0; u < U; u++) {
            sum[u] = gained[u] = mean_of_x[u] = V{};
            height[u] = top[u], own[u] = top_reward[u], place[u] = mode[u];
        }
        for (int k = 0; k < actions; k++)
            for (int u = 0, at = k * U; u < U; u++, at++) {
                V d = z[at] - height[u], lost = M::lost(z[at], height[u], d), e = M::corrected(M::exp(d), lost);
                sum[u] += all(R(k)) == place[u] ? V{} : e;
                gained[u] = fma(e, r[at] - own[u], gained[u]);
                p[at] = e;
                if (Seen) mean_of_x[u] = fma(e, d, mean_of_x[u]);
                if (Seen > 1) x[at] = d;
                if (Seen > 3) low[at] = lost;
            }
        V scaled[U], share[U], next[U], next_reward[U], next_mode[U], at_top[U], mean[U], cov[U], ret[U];
        for (int u = 0; u < U; u++) {
            share[u] = inverse_of(sum[u] + R(1)), scaled[u] = scale[u];
            gained[u] *= share[u], mean_of_x[u] *= share[u];
            at_top[u] = fma(share[u], scaled[u], fixed[u]) * -gained[u];
            next[u] = all(2 * T::kAbsent), next_mode[u] = next_reward[u] = mean[u] = cov[u] = ret[u] = V{};
        }
        for (int k = 0; k < actions; k++)
            for (int u = 0, at = k * U; u < U; u++, at++) {
                V pi = p[at] * share[u], advantage = (r[at] - own[u]) - gained[u];
                V d = fma(pi, scaled[u], alone[at]) * advantage, value = z[at] + d;
                z[at] = value;
                find_top(value, r[at], all(R(k)), next[u], next_reward[u], next_mode[u]);
                if (Seen > 1) p[at] = pi, delta[at] = d, mean[u] = fma(pi, d - at_top[u], mean[u]);
                if (Seen > 2) ret[u] = fma(pi, r[at], ret[u]);
                if (Seen > 2) cov[u] = fma(pi * (x[at] - mean_of_x[u]), advantage, cov[u]);
            }
        for (int u = 0; u < U; u++) {
            top[u] = next[u], top_reward[u] = next_reward[u], mode[u] = next_mode[u];
            if (!Seen) continue;
            log_sum[u] = M::log1p(sum[u], share[u]), entropy[u] = log_sum[u] - mean_of_x[u];
            mean_x[u] = mean_of_x[u], top_delta[u] = at_top[u], mean_delta[u] = mean[u];
            value[u] = ret[u], covariance[u] = cov[u], gain[u] = gained[u], inverse[u] = share[u], reward[u] = own[u];
        }
        if (Seen > 1 && natural && fields & 1 << kTheorem1) vanilla_covariance();
    }

    void vanilla_covariance() {
        V mean[U], sum[U];
        for (int u = 0; u < U; u++) mean[u] = sum[u] = V{};
        for (int k = 0; k < actions; k++)
            for (int u = 0, at = k * U; u < U; u++, at++) mean[u] = fma(p[at], push(at, u), mean[u]);
        for (int k = 0; k < actions; k++)
            for (int u = 0, at = k * U; u < U; u++, at++)
                sum[u] = fma(p[at] * (x[at] - mean_x[u]), push(at, u) - mean[u], sum[u]);
        for (int u = 0; u < U; u++) flat[u] = sum[u];
    }

    // π A − (π A of the mode)
    V push(int at, int u) const { return fma(p[at], (r[at] - reward[u]) - gain[u], inverse[u] * gain[u]); }

    // The covariance, the oscillation of δ, and the parts of the change for |d| ≤ ½ with the largest |d|.
    template <int Seen>
    void small_step(Change<T>* found, V* furthest, V* oscillation) {
        V *const __restrict p = this->p, *const __restrict x = this->x, *const __restrict delta = this->delta;
        V first[U], second[U], growth[U], parts[U], high[U], lowest[U], largest[U], middle[U], ground[U], mean[U];
        for (int u = 0; u < U; u++) {
            first[u] = second[u] = growth[u] = parts[u] = largest[u] = V{};
            high[u] = lowest[u] = top_delta[u];
            middle[u] = mean_x[u], ground[u] = top_delta[u], mean[u] = mean_delta[u];
        }
        for (int k = 0; k < actions; k++)
            for (int u = 0, at = k * U; u < U; u++, at++) {
                // A masked action counts as the mode, which is farther than 0 and takes no part in the sums.
                V step = delta[at];
                if (Seen > 2) step = x[at] > T::kAbsent / 2 ? step : ground[u];
                V slope = p[at] * (x[at] - middle[u]), d = (step - ground[u]) - mean[u];
                first[u] = fma(slope, d, first[u]);
                if (Seen < 3) continue;
                high[u] = M::larger(high[u], step), lowest[u] = M::smaller(lowest[u], step);
                if (Seen < 4) continue;
                V psi = M::small_psi(d);
                largest[u] = M::larger(largest[u], M::size(d));
                growth[u] = fma(p[at], psi, growth[u]);
                second[u] = fma(slope, psi, second[u]);
                parts[u] = fma(p[at], fma(d, d + psi, -psi), parts[u]);
            }
        for (int u = 0; u < U; u++) {
            found[u].covariance = first[u];
            oscillation[u] = high[u] - lowest[u], furthest[u] = largest[u];
            if (Seen < 4) continue;
            V shrink = inverse_of(growth[u] + R(1)), c = growth[u] * M::polynomial(T::kLog1p, growth[u]);
            V kl = fma(shrink, parts[u], shrink * growth[u] - c);
            V rest = shrink * (growth[u] * first[u] - second[u]) - kl;
            found[u] = {rest - first[u], first[u], rest, kl};
        }
    }

    // The same for any step, of the rows of vector u, as `change._large_step` has it.
    __attribute__((noinline)) Change<T> large_step(int u) {
        V peak = all(2 * T::kAbsent), rest = V{}, place = V{};
        for (int k = 0; k < actions; k++) {
            int at = k * U + u;
            auto live = x[at] > T::kAbsent / 2;
            V y = delta[at] - top_delta[u], total = x[at] + y, kept = total - x[at];
            V digits = (x[at] - (total - kept)) + (y - kept) + (low[at] + M::lost(delta[at], top_delta[u], y));
            after[at] = live ? total : all(T::kAbsent), low[at] = live ? digits : V{};
            find_top(after[at], low[at], all(R(k)), peak, rest, place);
        }
        V sum = V{}, mean = V{};
        for (int k = 0; k < actions; k++) {
            int at = k * U + u;
            V d = after[at] - peak, digits = M::lost(after[at], peak, d) + (low[at] - rest);
            V e = M::corrected(M::exp(d), digits);
            sum += all(R(k)) == place ? V{} : e;
            mean = fma(e, d, mean);
            after[at] = d, low[at] = e;
        }
        V inverse_sum = inverse_of(sum + R(1)), log_after = M::log1p(sum, inverse_sum);
        return compared(u, inverse_sum, log_after, log_after - mean * inverse_sum);
    }

    V centred_delta(int at, int u) const {
        return x[at] > T::kAbsent / 2 ? (delta[at] - top_delta[u]) - mean_delta[u] : V{};
    }

    // log Σ π eᵈ, or through its largest term where eᵈ would overflow.
    V log_mean_exp(int u) const {
        const R safe = R(0.4) * std::log(std::numeric_limits<R>::max());
        V growth = V{}, highest = V{}, peak = all(2 * T::kAbsent), through = V{};
        for (int k = 0; k < actions; k++) {
            V d = centred_delta(k * U + u, u), pi = p[k * U + u], capped = M::smaller(d, all(safe));
            growth = fma(pi, psi(capped, M::exp(capped)), growth);
            highest = pi > R(0) ? M::larger(highest, d) : highest;
            peak = pi > R(0) ? M::larger(peak, x[k * U + u] - log_sum[u] + d) : peak;
        }
        V plain = M::log1p(growth, inverse_of(growth + R(1)));
        if (!any_above(highest, safe)) return plain;
        for (int k = 0; k < actions; k++) {
            V e = M::exp(x[k * U + u] - log_sum[u] + centred_delta(k * U + u, u) - peak);
            through += p[k * U + u] > R(0) ? e : V{};
        }
        return highest > safe ? peak + M::log(through) : plain;
    }

    // e^y − 1 − y, where e = e^y.
    static V psi(V y, V e) { return M::size(y) < R(0.5) ? M::small_psi(y) : (e - R(1)) - y; }

    Change<T> compared(int u, V inverse_sum, V log_after, V entropy_after) const {
        V kl = V{}, linear = V{}, curved = V{}, terms = V{}, of_linear = V{}, of_curved = V{}, of_terms = V{};
        V mass = V{}, reverse = V{}, c = log_mean_exp(u);
        for (int k = 0; k < actions; k++) {
            int at = k * U + u;
            V pi = p[at], d = centred_delta(at, u), next = low[at] * inverse_sum;
            V jump = (after[at] - log_after) - (x[at] - log_sum[u]), slope = pi * (x[at] - mean_x[u]);
            auto taken = pi > R(0);
            V y = taken ? (c > R(30) ? jump : d - c) : V{}, e = M::exp(y), curve = psi(y, e);
            V growth = M::size(y) < R(0.5) ? y + curve : e - R(1);
            kl += pi * (y < R(-1) ? e * (y - R(1)) + R(1) : y * (y + curve) - curve);
            V second = slope * (M::size(d) < c ? growth - d : curve - c), both = slope * growth;
            linear = fma(slope, d, linear), curved += second, terms += both;
            of_linear += M::size(slope * d), of_curved += M::size(second), of_terms += M::size(both);
            mass += taken ? V{} : next;
            reverse += next > R(0) ? next * jump : V{};
        }
        auto revived = mass > std::numeric_limits<R>::epsilon();
        V entropies = entropy_after + entropy[u];
        auto subtract = revived | (entropies < of_terms + kl);
        V change = subtract ? entropy_after - entropy[u] : -terms - kl;
        auto add = revived | ((subtract ? entropies : of_terms + kl) + of_linear < of_curved + kl);
        return {change, linear, add ? change + linear : -curved - kl, revived ? reverse : kl};
    }

    // Holds the fields of the step that was just taken, times the weights.
    template <int Seen>
    void record() {
        Change<T> found[U] = {};
        V largest[U], oscillation[U];
        if (Seen > 1) small_step<Seen>(found, largest, oscillation);
        for (int u = 0; u < U; u++) {
            if (Seen > 3 && any_above(largest[u], R(0.5))) {
                Change<T> far = large_step(u), near = found[u];
                auto small = largest[u] <= R(0.5);
                found[u] = {small ? near.change : far.change, near.covariance,
                            small ? near.remainder : far.remainder, small ? near.divergence : far.divergence};
            }
            hold(kEntropy, u, entropy[u]);
            if (Seen < 2) continue;
            hold(kLemma1, u, -found[u].covariance);
            hold(kTheorem1, u, natural ? -step_size[u] * weight[u] * flat[u] : -found[u].covariance);
            if (Seen < 3) continue;
            hold(kReturn, u, value[u]), hold(kCovariance, u, covariance[u]);
            hold(kTheorem2, u, weight[u] > R(0) ? -step_size[u] * covariance[u] : V{});
            hold(kBound, u, constant[u] * (oscillation[u] * oscillation[u]));
            if (Seen < 4) continue;
            hold(kChange, u, found[u].change), hold(kRemainder, u, found[u].remainder);
            hold(kDivergence, u, found[u].divergence);
        }
        count++;
    }

    void hold(Field field, int u, V number) {
        if (fields & 1 << field)
            held[(field * kHeld + count) * U + u] = weight[u] > R(0) ? weight[u] * number : V{};
    }

    void take_step(bool due) {
        if (!due) return step<0>();
        if (level == 1) step<1>(), record<1>();
        if (level == 2) step<2>(), record<2>();
        if (level == 3) step<3>(), record<3>();
        if (level == 4) step<4>(), record<4>();
    }
};

// Where the numbers of a call are: runs × states × actions, runs, recorded steps.
template <class R>
struct Call {
    const R *logits, *rewards, *weights, *step_sizes;
    R *moved, *sums;
    int64_t runs, states, actions, recorded;
    int start, stop, every, fields;
    bool natural;
};

// Adds what a tile holds to the sums of its runs, which begin with their first state. A run with more states than a tile
// has rows fills whole tiles of its own; the states of a smaller one are added one after another.
template <class T, int U>
void add_up(Tile<T, U>& tile, const Call<typename T::R>& call, int64_t first, int rows, int64_t recorded) {
    using R = typename T::R;
    constexpr int kRows = Tile<T, U>::kRows;
    int64_t plane = 0;
    for (int field = 0; field < kFields; field++) {
        if (!(call.fields & 1 << field)) continue;
        const R* held = reinterpret_cast<const R*>(tile.held.data()) + size_t(field) * kHeld * kRows;
        R* out = call.sums + plane++ * call.runs * call.recorded + recorded - tile.count;
        if (call.states >= kRows) {
            R* sums = out + first / call.states * call.recorded;
            bool begins = first % call.states == 0;
            for (int t = 0; t < tile.count; t++) {
                auto sum = tile.held[(field * kHeld + t) * U];
                for (int u = 1; u < U; u++) sum += tile.held[(field * kHeld + t) * U + u];
                sums[t] = (begins ? R(0) : sums[t]) + total(sum);
            }
            continue;
        }
        for (int row = 0; row < rows;) {
            int64_t run = (first + row) / call.states;
            int last = int(std::min<int64_t>(rows, (run + 1) * call.states - first));
            R* sums = out + run * call.recorded;
            bool begins = (first + row) % call.states == 0;
            for (int t = 0; t < tile.count; t++) {
                R sum = begins ? R(0) : sums[t];
                for (int i = row; i < last; i++) sum += held[t * kRows + i];
                sums[t] = sum;
            }
            row = last;
        }
    }
    tile.count = 0;
}

template <class T, int U>
void take_rows(Tile<T, U>& tile, const Call<typename T::R>& call, int64_t first, int rows) {
    for (int lane = 0; lane < tile.kRows; lane++) {
        int64_t row = first + std::min(lane, rows - 1), place = row * call.actions;
        auto weight = lane < rows ? call.weights[row] : 0;
        tile.load(lane, call.logits + place, call.rewards + place, weight, call.step_sizes[row / call.states]);
    }
    tile.begin();
    int64_t recorded = 0;
    int wait = 0;
    for (int t = call.start; t < call.stop; t++) {
        tile.take_step(wait == 0);
        if (wait == 0) recorded++, wait = call.every;
        wait--;
        if (tile.count == kHeld) add_up(tile, call, first, rows, recorded);
    }
    add_up(tile, call, first, rows, recorded);
    for (int lane = 0; lane < rows; lane++) tile.store(lane, call.moved + (first + lane) * call.actions);
}

template <class T, int U>
void take_all(const Call<typename T::R>& call) {
    Tile<T, U> tile(int(call.actions), call.natural, call.fields);
    int64_t all = call.runs * call.states, group = call.states >= tile.kRows ? call.states : all;
    for (int64_t first = 0; first < all; first += group)
        for (int64_t row = 0; row < group; row += tile.kRows)
            take_rows(tile, call, first + row, int(std::min<int64_t>(tile.kRows, group - row)));
}

constexpr int64_t kWide = 64;  // actions up to which two vectors of rows at a time stay in the nearest cache

// Sets to 0 what no step of the call is recorded to.
template <class R>
void clear_rest(const Call<R>& call, int64_t count) {
    int64_t due = std::min<int64_t>(call.recorded, std::max(0, (call.stop - call.start + call.every - 1) / call.every));
    for (R* row = call.sums; row < call.sums + count; row += call.recorded)
        std::fill(row + due, row + call.recorded, R(0));
}

template <class T>
ffi::Error take(ffi::AnyBuffer logits, ffi::AnyBuffer rewards, ffi::AnyBuffer weights, ffi::AnyBuffer step_sizes,
                const int32_t* steps, ffi::Result<ffi::AnyBuffer> moved, ffi::Result<ffi::AnyBuffer> sums,
                bool natural, int fields) {
    using R = typename T::R;
    auto shape = logits.dimensions();
    Call<R> call = {static_cast<const R*>(logits.untyped_data()),
                    static_cast<const R*>(rewards.untyped_data()),
                    static_cast<const R*>(weights.untyped_data()),
                    static_cast<const R*>(step_sizes.untyped_data()),
                    static_cast<R*>(moved->untyped_data()),
                    static_cast<R*>(sums->untyped_data()),
                    shape[0], shape[1], shape[2], sums->dimensions()[2], steps[0], steps[1], steps[2], fields, natural};
    FlushSubnormals guard;
    clear_rest(call, sums->element_count());
    call.actions > kWide ? take_all<T, 1>(call) : take_all<T, 2>(call);
    return ffi::Error::Success();
}

ffi::Error dispatch(ffi::AnyBuffer logits, ffi::AnyBuffer rewards, ffi::AnyBuffer weights, ffi::AnyBuffer step_sizes,
                    ffi::Buffer<ffi::S32> steps, ffi::Result<ffi::AnyBuffer> moved, ffi::Result<ffi::AnyBuffer> sums,
                    bool natural, int64_t fields) {
    auto run = logits.element_type() == ffi::F64 ? take<Double> : take<Single>;
    return run(logits, rewards, weights, step_sizes, steps.typed_data(), moved, sums, natural, int(fields));
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(softmaxdyn_rows, dispatch,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<bool>("natural")
                                  .Attr<int64_t>("fields"));
