/* How busy a GPU is while other programs use it, by its own counters:
 *     g++ -std=c++20 -I$CUDA/include cuda_load.cpp -o cuda_load -L$CUDA/lib64 -lcupti -lcuda
 *     PROGRAM ... & ./cuda_load SECONDS METRIC...
 * One metric after another, SECONDS each, sampled every 20 us: the mean over the samples, and how many they were. Metrics
 * are those of `ncu --query-metrics` that can be sampled, such as dram__throughput.avg.pct_of_peak_sustained_elapsed.
 * It needs the rights to read the counters (root). Exit status 1 when one of the metrics could not be had. No test. */
#include <cuda.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <vector>

enum { EVERY_NS = 20000, SAMPLES = 100000 };
static const size_t HARDWARE_BYTES = (size_t)512 << 20;

/* A parameter structure of CUPTI with its size filled in. */
#define PARAMS(type, name) type name = {.structSize = type##_STRUCT_SIZE} /* the rest is 0 */

static int failed(CUptiResult result, const char *what)
{
    const char *text = "?";
    if (result == CUPTI_SUCCESS)
        return 0;
    cuptiGetResultString(result, &text);
    fprintf(stderr, "cuda_load: %s: %s\n", what, text);
    return 1;
}

struct sampler {
    CUpti_Profiler_Host_Object *host;
    CUpti_PmSampling_Object *object;
    std::vector<uint8_t> config, data;
};

/* What the host part needs to know of one metric. */
static int configure(sampler *s, const char *chip, const uint8_t *available, const char **metric)
{
    PARAMS(CUpti_Profiler_Host_Initialize_Params, begin);
    begin.profilerType = CUPTI_PROFILER_TYPE_PM_SAMPLING;
    begin.pChipName = chip;
    begin.pCounterAvailabilityImage = available;
    if (failed(cuptiProfilerHostInitialize(&begin), "host"))
        return 1;
    s->host = begin.pHostObject;
    PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params, add);
    add.pHostObject = s->host;
    add.ppMetricNames = metric;
    add.numMetrics = 1;
    PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params, size);
    size.pHostObject = s->host;
    if (failed(cuptiProfilerHostConfigAddMetrics(&add), *metric) ||
        failed(cuptiProfilerHostGetConfigImageSize(&size), "config"))
        return 1;
    s->config.resize(size.configImageSize);
    PARAMS(CUpti_Profiler_Host_GetConfigImage_Params, image);
    image.pHostObject = s->host;
    image.configImageSize = s->config.size();
    image.pConfigImage = s->config.data();
    return failed(cuptiProfilerHostGetConfigImage(&image), "config");
}

static int sample(sampler *s, const char **metric, double seconds)
{
    PARAMS(CUpti_PmSampling_SetConfig_Params, set);
    set.pPmSamplingObject = s->object;
    set.configSize = s->config.size();
    set.pConfig = s->config.data();
    set.hardwareBufferSize = HARDWARE_BYTES;
    set.samplingInterval = EVERY_NS;
    set.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
    PARAMS(CUpti_PmSampling_GetCounterDataSize_Params, size);
    size.pPmSamplingObject = s->object;
    size.pMetricNames = metric;
    size.numMetrics = 1;
    size.maxSamples = SAMPLES;
    if (failed(cuptiPmSamplingSetConfig(&set), "settings") ||
        failed(cuptiPmSamplingGetCounterDataSize(&size), "size"))
        return 1;
    s->data.resize(size.counterDataSize);
    PARAMS(CUpti_PmSampling_CounterDataImage_Initialize_Params, image);
    image.pPmSamplingObject = s->object;
    image.counterDataSize = s->data.size();
    image.pCounterData = s->data.data();
    PARAMS(CUpti_PmSampling_Start_Params, start);
    PARAMS(CUpti_PmSampling_Stop_Params, stop);
    PARAMS(CUpti_PmSampling_DecodeData_Params, decode);
    start.pPmSamplingObject = stop.pPmSamplingObject = decode.pPmSamplingObject = s->object;
    decode.pCounterDataImage = s->data.data();
    decode.counterDataImageSize = s->data.size();
    if (failed(cuptiPmSamplingCounterDataImageInitialize(&image), "image") ||
        failed(cuptiPmSamplingStart(&start), "start"))
        return 1;
    usleep((useconds_t)(seconds * 1e6));
    return failed(cuptiPmSamplingStop(&stop), "stop") || failed(cuptiPmSamplingDecodeData(&decode), "decode");
}

static int print_mean(const sampler *s, const char **metric)
{
    double sum = 0;
    PARAMS(CUpti_PmSampling_GetCounterDataInfo_Params, info);
    info.pCounterDataImage = s->data.data();
    info.counterDataImageSize = s->data.size();
    if (failed(cuptiPmSamplingGetCounterDataInfo(&info), "samples"))
        return 1;
    for (size_t i = 0; i < info.numCompletedSamples; i++) {
        double value = 0;
        PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, one);
        one.pHostObject = s->host;
        one.pCounterDataImage = s->data.data();
        one.counterDataImageSize = s->data.size();
        one.rangeIndex = i;
        one.ppMetricNames = metric;
        one.numMetrics = 1;
        one.pMetricValues = &value;
        if (failed(cuptiProfilerHostEvaluateToGpuValues(&one), *metric))
            return 1;
        sum += value;
    }
    printf("%-70s %8.2f  (%zu samples)\n", *metric, sum / (double)(info.numCompletedSamples + !info.numCompletedSamples),
           info.numCompletedSamples);
    return info.numCompletedSamples == 0;
}

static int measure(const char *chip, const uint8_t *available, const char *metric, double seconds)
{
    sampler s = {};
    PARAMS(CUpti_PmSampling_Enable_Params, enable);
    int bad = configure(&s, chip, available, &metric) || failed(cuptiPmSamplingEnable(&enable), "counters");
    s.object = enable.pPmSamplingObject;
    bad = bad || sample(&s, &metric, seconds) || print_mean(&s, &metric);
    PARAMS(CUpti_PmSampling_Disable_Params, disable);
    disable.pPmSamplingObject = s.object;
    if (s.object)
        cuptiPmSamplingDisable(&disable);
    PARAMS(CUpti_Profiler_Host_Deinitialize_Params, end);
    end.pHostObject = s.host;
    if (s.host)
        cuptiProfilerHostDeinitialize(&end);
    return bad;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: cuda_load SECONDS METRIC...\n");
        return 2;
    }
    CUdevice device;
    PARAMS(CUpti_Profiler_Initialize_Params, begin);
    PARAMS(CUpti_Device_GetChipName_Params, chip);
    PARAMS(CUpti_PmSampling_GetCounterAvailability_Params, available);
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS) {
        fprintf(stderr, "cuda_load: no NVIDIA GPU or no driver here: run it where there is one\n");
        return 1;
    }
    if (failed(cuptiProfilerInitialize(&begin), "profiler") || failed(cuptiDeviceGetChipName(&chip), "chip") ||
        failed(cuptiPmSamplingGetCounterAvailability(&available), "what there is"))
        return 1;
    std::vector<uint8_t> image(available.counterAvailabilityImageSize);
    available.pCounterAvailabilityImage = image.data();
    if (failed(cuptiPmSamplingGetCounterAvailability(&available), "what there is"))
        return 1;
    int bad = 0;
    for (int k = 2; k < argc; k++)
        bad |= measure(chip.pChipName, image.data(), argv[k], atof(argv[1]));
    return bad;
}
