/* 32 bytes as two lanes of 16, lane by lane: NEON. See lanes.h for what each must do. */
#ifndef EA_LANES_NEON_H
#define EA_LANES_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint8x16_t low, high;
} ea_v;

#define EA_S16(a) vreinterpretq_s16_u8(a)
#define EA_U16(a) vreinterpretq_u16_u8(a)
#define EA_S32(a) vreinterpretq_s32_u8(a)
#define EA_FROM_S16(a) vreinterpretq_u8_s16(a)
#define EA_FROM_U16(a) vreinterpretq_u8_u16(a)
#define EA_FROM_S32(a) vreinterpretq_u8_s32(a)
/* The same on both lanes. */
#define EA_BOTH(operation) (ea_v) { operation(a.low, b.low), operation(a.high, b.high) }

static inline ea_v v_load(const void *p) { return (ea_v){vld1q_u8(p), vld1q_u8((const uint8_t *)p + 16)}; }
static inline ea_v v_load_two(const uint8_t *low, const uint8_t *high) { return (ea_v){vld1q_u8(low), vld1q_u8(high)}; }
static inline ea_v v_load_four(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d) {
    return (ea_v){vcombine_u8(vld1_u8(a), vld1_u8(b)), vcombine_u8(vld1_u8(c), vld1_u8(d))};
}
static inline ea_v v_widen_two(const uint8_t *low, const uint8_t *high) {
    return (ea_v){EA_FROM_U16(vmovl_u8(vld1_u8(low))), EA_FROM_U16(vmovl_u8(vld1_u8(high)))};
}
static inline ea_v v_widen16(const uint8_t *p) {
    uint8x16_t a = vld1q_u8(p);
    return (ea_v){EA_FROM_U16(vmovl_u8(vget_low_u8(a))), EA_FROM_U16(vmovl_high_u8(a))};
}
static inline ea_v v_shuffle(ea_v a, ea_v b) { return EA_BOTH(vqtbl1q_u8); }

#define EA_ZIP(name, zip, type)                                                                     \
    static inline uint8x16_t name##_lane(uint8x16_t a, uint8x16_t b) {                              \
        return vreinterpretq_u8_##type(zip(vreinterpretq_##type##_u8(a), vreinterpretq_##type##_u8(b))); \
    }                                                                                               \
    static inline ea_v name(ea_v a, ea_v b) { return EA_BOTH(name##_lane); }
EA_ZIP(v_zip_low16, vzip1q_u16, u16)
EA_ZIP(v_zip_high16, vzip2q_u16, u16)
EA_ZIP(v_zip_low32, vzip1q_u32, u32)
EA_ZIP(v_zip_high32, vzip2q_u32, u32)
EA_ZIP(v_zip_low64, vzip1q_u64, u64)
EA_ZIP(v_zip_high64, vzip2q_u64, u64)

static inline ea_v both(uint8x16_t a) { return (ea_v){a, a}; }
static inline ea_v v_set8(int v) { return both(vdupq_n_u8((uint8_t)v)); }
static inline ea_v v_set16(int v) { return both(EA_FROM_S16(vdupq_n_s16((int16_t)v))); }
static inline ea_v v_set32(int v) { return both(EA_FROM_S32(vdupq_n_s32(v))); }
static inline ea_v v_and(ea_v a, ea_v b) { return EA_BOTH(vandq_u8); }
static inline ea_v v_or(ea_v a, ea_v b) { return EA_BOTH(vorrq_u8); }
static inline ea_v v_xor(ea_v a, ea_v b) { return EA_BOTH(veorq_u8); }
static inline ea_v v_select(ea_v mask, ea_v a, ea_v b) {
    return (ea_v){vbslq_u8(mask.low, a.low, b.low), vbslq_u8(mask.high, a.high, b.high)};
}

static inline ea_v v_mean8(ea_v a, ea_v b) { return EA_BOTH(vrhaddq_u8); }
static inline ea_v v_sub_to_zero8(ea_v a, ea_v b) { return EA_BOTH(vqsubq_u8); }
static inline ea_v v_sub8(ea_v a, ea_v b) { return EA_BOTH(vsubq_u8); }
static inline ea_v v_step8(ea_v a, ea_v b) { return EA_BOTH(vabdq_u8); }
static inline ea_v v_at_least8(ea_v a, ea_v b) { return EA_BOTH(vcgeq_u8); }
static inline uint8x16_t sums8(uint8x16_t a) { return vreinterpretq_u8_u32(vpaddlq_u16(vpaddlq_u8(a))); }
static inline ea_v v_sums8(ea_v a) { return (ea_v){sums8(a.low), sums8(a.high)}; }
/* Weights are 0..127, so that products fit unsigned 16 bits and their sums signed ones. */
static inline uint8x16_t mul_pairs8(uint8x16_t a, uint8x16_t b) {
    return EA_FROM_U16(vpaddq_u16(vmull_u8(vget_low_u8(a), vget_low_u8(b)), vmull_high_u8(a, b)));
}
static inline ea_v v_mul_pairs8(ea_v a, ea_v b) { return EA_BOTH(mul_pairs8); }

#define EA_LANES16(name, operation, view, back)                                                    \
    static inline uint8x16_t name##_lane(uint8x16_t a, uint8x16_t b) { return back(operation(view(a), view(b))); } \
    static inline ea_v name(ea_v a, ea_v b) { return EA_BOTH(name##_lane); }
EA_LANES16(v_add16, vaddq_u16, EA_U16, EA_FROM_U16)
EA_LANES16(v_sub16, vsubq_u16, EA_U16, EA_FROM_U16)
EA_LANES16(v_add32, vaddq_s32, EA_S32, EA_FROM_S32)

static inline ea_v v_right16(ea_v a, int bits) {
    int16x8_t by = vdupq_n_s16((int16_t)-bits);
    return (ea_v){EA_FROM_U16(vshlq_u16(EA_U16(a.low), by)), EA_FROM_U16(vshlq_u16(EA_U16(a.high), by))};
}
static inline ea_v v_left16(ea_v a, int bits) {
    int16x8_t by = vdupq_n_s16((int16_t)bits);
    return (ea_v){EA_FROM_U16(vshlq_u16(EA_U16(a.low), by)), EA_FROM_U16(vshlq_u16(EA_U16(a.high), by))};
}
static inline uint8x16_t mul_high16(uint8x16_t a, uint8x16_t b) {
    int32x4_t low = vmull_s16(vget_low_s16(EA_S16(a)), vget_low_s16(EA_S16(b)));
    int32x4_t high = vmull_high_s16(EA_S16(a), EA_S16(b));
    return EA_FROM_S16(vuzp2q_s16(vreinterpretq_s16_s32(low), vreinterpretq_s16_s32(high)));
}
static inline ea_v v_mul_high16(ea_v a, ea_v b) { return EA_BOTH(mul_high16); }
static inline uint8x16_t narrow16(uint8x16_t a, uint8x16_t b) { return vqmovun_high_s16(vqmovun_s16(EA_S16(a)), EA_S16(b)); }
static inline ea_v v_narrow16(ea_v a, ea_v b) { return EA_BOTH(narrow16); }
static inline uint8x16_t alternate(uint8x16_t a) { return vzip1q_u8(a, vextq_u8(a, a, 8)); }
static inline ea_v v_alternate(ea_v a) { return (ea_v){alternate(a.low), alternate(a.high)}; }
static inline uint8x16_t mul_pairs16(uint8x16_t a, uint8x16_t b) {
    int32x4_t low = vmull_s16(vget_low_s16(EA_S16(a)), vget_low_s16(EA_S16(b)));
    return EA_FROM_S32(vpaddq_s32(low, vmull_high_s16(EA_S16(a), EA_S16(b))));
}
static inline ea_v v_mul_pairs16(ea_v a, ea_v b) { return EA_BOTH(mul_pairs16); }

static inline ea_v v_right32(ea_v a, int bits) {
    int32x4_t by = vdupq_n_s32(-bits);
    return (ea_v){EA_FROM_S32(vshlq_s32(EA_S32(a.low), by)), EA_FROM_S32(vshlq_s32(EA_S32(a.high), by))};
}
static inline ea_v v_right32_by(ea_v a, int bits) { return v_right32(a, bits); }
static inline uint8x16_t add_pairs32(uint8x16_t a, uint8x16_t b) { return EA_FROM_S32(vpaddq_s32(EA_S32(a), EA_S32(b))); }
static inline ea_v v_add_pairs32(ea_v a, ea_v b) { return EA_BOTH(add_pairs32); }
static inline uint8x16_t narrow32(uint8x16_t a, uint8x16_t b) {
    return EA_FROM_S16(vqmovn_high_s32(vqmovn_s32(EA_S32(a)), EA_S32(b)));
}
static inline ea_v v_narrow32(ea_v a, ea_v b) { return EA_BOTH(narrow32); }

static inline void v_store_bytes16(uint8_t *to, ea_v a) {
    vst1q_u8(to, vqmovun_high_s16(vqmovun_s16(EA_S16(a.low)), EA_S16(a.high)));
}
static inline void v_store_words16(int16_t *to, ea_v a) {
    vst1q_s16(to, EA_S16(a.low));
    vst1q_s16(to + 8, EA_S16(a.high));
}
static inline ea_v v_load_same(const uint8_t *p) { return both(vld1q_u8(p)); }
static inline ea_v v_add_lanes32(ea_v a, ea_v b) { return (ea_v){v_add32_lane(a.low, a.high), v_add32_lane(b.low, b.high)}; }
/* Words of pixels 0, 2 (low lane) and 1, 3 in a, 4, 6 and 5, 7 in b, four each of which the last is not used, as eight bytes
 * of each channel. */
static inline uint8x16_t by_channel(uint8x16_t a, uint8x16_t b) {
    static const uint8_t order[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    return vqtbl1q_u8(vqmovun_high_s16(vqmovun_s16(EA_S16(a)), EA_S16(b)), vld1q_u8(order));
}
static inline void v_store_eights(uint8_t *const to[3], int32_t at, ea_v a, ea_v b) {
    const uint8x16_t even = by_channel(a.low, b.low), odd = by_channel(a.high, b.high);
    const uint8x16_t first_two = vzip1q_u8(even, odd);
    vst1_u8(to[0] + at, vget_low_u8(first_two));
    vst1_u8(to[1] + at, vget_high_u8(first_two));
    vst1_u8(to[2] + at, vget_low_u8(vzip2q_u8(even, odd)));
}

typedef struct {
    ea_v low, high;
} wide;
static inline uint8x16_t widen_low(uint8x16_t a) { return EA_FROM_S32(vmovl_s16(vget_low_s16(EA_S16(a)))); }
static inline uint8x16_t widen_high(uint8x16_t a) { return EA_FROM_S32(vmovl_high_s16(EA_S16(a))); }
static inline wide v_factorable(ea_v a) {
    return (wide){{widen_low(a.low), widen_low(a.high)}, {widen_high(a.low), widen_high(a.high)}};
}
static inline ea_v v_factor(int32_t f) { return v_set32(f); }
static inline uint8x16_t times_lane(uint8x16_t a, uint8x16_t b) { return EA_FROM_S32(vmulq_s32(EA_S32(a), EA_S32(b))); }
static inline ea_v times_half(ea_v a, ea_v b) { return EA_BOTH(times_lane); }
static inline wide v_times(wide a, ea_v f) { return (wide){times_half(a.low, f), times_half(a.high, f)}; }
/* Values of tap 0 and of tap 1, shifted right by 20 bits and clipped, as pairs: of the upper words, four bits too long. */
static inline uint8x16_t pairs_right20(uint8x16_t even0, uint8x16_t odd0, uint8x16_t even1, uint8x16_t odd1) {
    const int16x8_t first = vtrn2q_s16(EA_S16(even0), EA_S16(odd0)), second = vtrn2q_s16(EA_S16(even1), EA_S16(odd1));
    return vqshrun_high_n_s16(vqshrun_n_s16(first, 4), second, 4);
}
static inline ea_v v_pairs_right20(wide even, wide odd) {
    return (ea_v){pairs_right20(even.low.low, odd.low.low, even.high.low, odd.high.low),
                  pairs_right20(even.low.high, odd.low.high, even.high.high, odd.high.high)};
}

/* The factors of eight values, in registers. */
typedef struct {
    float32x4x2_t high, low, b;
} v_factors8;
static inline v_factors8 v_load_factors8(const float *high, const float *low, const float *b) {
    return (v_factors8){vld1q_f32_x2(high), vld1q_f32_x2(low), vld1q_f32_x2(b)};
}
/* Eight bytes to floats p * high + (p * low + b); the _words and _bytes stores round those half to even and saturate.
 * p * high is exact, so that a fused multiply-add gives the same bits. */
static inline float32x4x2_t affine8(const uint8_t *in, const v_factors8 *f) {
    const uint16x8_t words = vmovl_u8(vld1_u8(in));
    const float32x4_t p[2] = {vcvtq_f32_u32(vmovl_u16(vget_low_u16(words))), vcvtq_f32_u32(vmovl_high_u16(words))};
    float32x4x2_t value;
    for (int i = 0; i < 2; i++) {
        value.val[i] = vfmaq_f32(vaddq_f32(vmulq_f32(p[i], f->low.val[i]), f->b.val[i]), p[i], f->high.val[i]);
    }
    return value;
}
static inline uint16x8_t quantised8(float32x4x2_t value) {
    return vqmovun_high_s32(vqmovun_s32(vcvtnq_s32_f32(value.val[0])), vcvtnq_s32_f32(value.val[1]));
}
static inline void v_store_floats8(float *to, const uint8_t *in, const v_factors8 *f) {
    const float32x4x2_t value = affine8(in, f);
    vst1q_f32(to, value.val[0]);
    vst1q_f32(to + 4, value.val[1]);
}
static inline void v_store_words8(uint16_t *to, const uint8_t *in, const v_factors8 *f) {
    vst1q_u16(to, quantised8(affine8(in, f)));
}
static inline void v_store_bytes8(uint8_t *to, const uint8_t *in, const v_factors8 *f) {
    vst1_u8(to, vqmovn_u16(quantised8(affine8(in, f))));
}
/* 16 bytes of each channel as 16 triples. */
static inline void v_store_triples(uint8_t *to, const uint8_t *first, const uint8_t *second, const uint8_t *third) {
    vst3q_u8(to, (uint8x16x3_t){{vld1q_u8(first), vld1q_u8(second), vld1q_u8(third)}});
}
/* Into the second level: there wait more loads at a time than in the first. Always inlined, or gcc takes the function,
 * which seems to do nothing, away. */
static inline __attribute__((always_inline)) void v_prefetch(const uint8_t *p) { __builtin_prefetch(p, 0, 2); }

#endif
