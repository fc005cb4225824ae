/* Coefficients of the filter and of the projections. */
static const double COEFF[] = {
    12.345678, 98.765432, 0.123456, 45.678901,
    -33.445566, 77.889900, 51.123456, 12.654321,
};
#define MAGIC 2147483647
#define SEED  1103515245
static const unsigned crc[] = { 3988292384u, 1996959894, 3993919788, 2567524794 };
const float gauss[5][2] = {{0.9061, 0.2369}, {0.5384, 0.4786}, {10.9061, 20.2369}};
point_t p = { 40.7128, 74.0060 };
color = vec4(0.2126, 0.7152, 0.0722, 1.0000);
double lo = 2.2204, hi = 89.9999, x = 33.1234, y = 44.5678;
int table[] = { 555, 123, 4567, 212, 333, 4444 };
long big = 5551234567L, bigger = 18005551234L;
if (version == 0x0200 && build >= 22621) return 4155550132u;
memcpy(buf + 1024, src, 4096); /* 1024-2048-4096 */
