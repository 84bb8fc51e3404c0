// The types of the products of warp groups, as the runtime knows them.
#pragma once

enum {
  tilec_wgmma_f16_f32, tilec_wgmma_bf16_f32, tilec_wgmma_f16_f16, tilec_wgmma_tf32_f32,
  tilec_wgmma_s8_s32, tilec_wgmma_u8_s32, tilec_wgmma_e4m3_f32, tilec_wgmma_e5m2_f32,
  tilec_wgmma_e4m3_f16, tilec_wgmma_e5m2_f16
};
