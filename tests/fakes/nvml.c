/* libnvidia-ml.so.1 as a driver has it, for what gputui asks of it.
 *
 * The file that MOCK_NVML names is read at every call, a line each:
 *   gpu UUID NAME MIB MIG_MODE COMPUTE_MODE      (spaces in names are written _)
 *   mig GPU INDEX UUID NAME MIB                  (an instance of a GPU, by its index)
 *   xid GPU NUMBER                               (each line is an event, once)
 *   hang FUNCTION                                (it returns when this line is gone)
 * GPUs are hidden whose device file, nvidia0 and so on in the folder that MOCK_NVML_DEVICES names, a
 * device control group keeps this process from.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TIMEOUT = 10,
    OK = 0,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6
};

typedef struct {
    char uuid[96], name[96];
    unsigned long long mib;
    int mode, compute_mode, found;
} Device;

/* A handle is 1 + GPU * 100, and for an instance 1 + its index more, and 10 a generation: as with
 * NVML, one of a destroyed instance is not one of the next. */
static unsigned long generation(const char *uuid) {
    unsigned long sum = 0;
    while (*uuid) sum = sum * 31 + *uuid++;
    return sum % 1000;
}

static int enter(const char *function, int gpu, int instance, Device *device) {
    for (;;) {
        FILE *file = fopen(getenv("MOCK_NVML"), "r");
        char line[512], word[96];
        int gpus = 0, hangs = 0, of, index;
        memset(device, 0, sizeof *device);
        while (file && fgets(line, sizeof line, file)) {
            Device read = {0};
            if (sscanf(line, "hang %95s", word) == 1) hangs |= !strcmp(word, function);
            if (sscanf(line, "gpu %95s %95s %llu %d %d", read.uuid, read.name, &read.mib,
                       &read.mode, &read.compute_mode) == 5) {
                if (gpus++ == gpu && instance < 0) *device = read, device->found = 1;
            }
            if (sscanf(line, "mig %d %d %95s %95s %llu", &of, &index, read.uuid, read.name,
                       &read.mib) == 5 && of == gpu && index == instance)
                *device = read, device->found = 1;
        }
        if (file) fclose(file);
        if (!hangs) {
            for (char *c = device->name; *c; c++) if (*c == '_') *c = ' ';
            return gpus;
        }
        usleep(5000);
    }
}

typedef unsigned long Handle;

static int whole(Handle handle) { return handle % 100 == 1; }

static int look(const char *function, Handle handle, Device *device) {
    enter(function, handle / 100 % 100, whole(handle) ? -1 : (int)(handle % 100) - 2, device);
    if (!device->found) return INVALID_ARGUMENT;
    if (!whole(handle) && generation(device->uuid) != handle / 10000) return INVALID_ARGUMENT;
    return OK;
}

#define LOOK Device d; int code = look(__func__, handle, &d); if (code) return code
#define WHOLE LOOK; if (!whole(handle)) return NOT_SUPPORTED

const char *nvmlErrorString(int code) { return code == NOT_FOUND ? "Not Found" : "Failed"; }
int nvmlInitWithFlags(unsigned flags) { Device d; enter(__func__, 0, -1, &d); return OK; }
int nvmlShutdown(void) { return OK; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "580.95.05");
    return OK;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    Device d;
    *count = enter(__func__, 0, -1, &d);
    return OK;
}
static int hidden(unsigned index) {
    char path[512];
    int file;
    if (!getenv("MOCK_NVML_DEVICES")) return 0;
    snprintf(path, sizeof path, "%s/nvidia%u", getenv("MOCK_NVML_DEVICES"), index);
    if ((file = open(path, O_RDONLY)) >= 0) close(file);
    return file < 0 && errno == EPERM;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle *found) {
    Handle handle = 1 + index * 100;
    LOOK;
    if (hidden(index)) return NO_PERMISSION;
    *found = handle;
    return OK;
}
int nvmlDeviceGetUUID(Handle handle, char *text, unsigned size) {
    LOOK;
    snprintf(text, size, "%s", d.uuid);
    return OK;
}
int nvmlDeviceGetName(Handle handle, char *text, unsigned size) {
    LOOK;
    snprintf(text, size, "%s", d.name);
    return OK;
}
int nvmlDeviceGetMinorNumber(Handle handle, unsigned *minor) {
    WHOLE;
    *minor = handle / 100;
    return OK;
}
struct Memory { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(Handle handle, struct Memory *memory) {
    LOOK;
    memory->total = d.mib << 20;
    memory->reserved = 0;
    memory->used = 12ull << 20;
    memory->free = memory->total - memory->used;
    return OK;
}
int nvmlDeviceGetUtilizationRates(Handle handle, unsigned *rates) {
    WHOLE;
    if (d.mode) return NOT_SUPPORTED;
    rates[0] = 7, rates[1] = 0;
    return OK;
}
int nvmlDeviceGetPowerUsage(Handle handle, unsigned *milliwatts) {
    WHOLE;
    *milliwatts = 70000;
    return OK;
}
int nvmlDeviceGetComputeMode(Handle handle, int *mode) {
    WHOLE;
    *mode = d.compute_mode;
    return OK;
}
int nvmlDeviceGetMigMode(Handle handle, unsigned *current, unsigned *pending) {
    WHOLE;
    *current = *pending = d.mode;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Handle handle, unsigned *count) { WHOLE; *count = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(Handle handle, unsigned index, Handle *found) {
    Device instance;
    WHOLE;
    enter(__func__, handle / 100, index, &instance);
    if (!instance.found) return NOT_FOUND;
    *found = generation(instance.uuid) * 10000 + handle + 1 + index;
    return OK;
}
int nvmlEventSetCreate(void **set) { *set = calloc(1, sizeof(int)); return OK; }
int nvmlDeviceRegisterEvents(Handle handle, unsigned long long kinds, void *set) {
    WHOLE;
    return kinds == 8 ? OK : INVALID_ARGUMENT;
}
struct Event { Handle device; unsigned long long kind, data; unsigned instance, compute; };
int nvmlEventSetWait_v2(int *told, struct Event *event, unsigned milliseconds) {
    FILE *file = fopen(getenv("MOCK_NVML"), "r");
    char line[512];
    int gpu, number, seen = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "xid %d %d", &gpu, &number) == 2 && seen++ == *told) {
            *event = (struct Event){1 + gpu * 100, 8, number, ~0u, ~0u};
            ++*told;
            fclose(file);
            return OK;
        }
    if (file) fclose(file);
    return TIMEOUT;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Handle handle, unsigned *count, void *processes) {
    LOOK;
    *count = 0;
    return OK;
}
