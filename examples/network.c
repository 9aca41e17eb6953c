/* A network of your own on images in memory: four stripes patterns, the last of them rare. It is
 * trained by RECOVER, or by the optimiser that the command line names. Build: cc network.c
 * $(pkg-config --cflags --libs libdro) */
#include <dro/dro.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 2000, SIDE = 12, SIZE = SIDE * SIDE, CLASSES = 4, MOST = 64 };

static float images[N][SIZE];
static int32_t labels[N];

static void draw_images(void)
{
    for (int i = 0; i < N; i++) {
        int rare = rand() % 20 == 0, kind = rare ? 3 : rand() % 3, shift = rand() % 4;
        labels[i] = kind;
        for (int p = 0; p < SIZE; p++) {
            int r = p / SIDE, c = p % SIDE, at[CLASSES] = {r, c, r + c, r - c + SIDE};
            images[i][p] = ((at[kind] + shift) % 4 < 2) + 0.7f * (float)rand() / (float)RAND_MAX;
        }
    }
}

/* The library draws ids; this turns them into pixels and labels, which stay until the next but
 * two. */
static dro_status fetch(void *user, const dro_batch *batch, dro_net_batch *out)
{
    static float x[4][MOST][SIZE];
    static int32_t y[4][MOST];
    static int turn;
    (void)user;
    turn = (turn + 1) % 4;
    for (size_t i = 0; i < batch->count; i++) {
        for (int p = 0; p < SIZE; p++)
            x[turn][i][p] = images[batch->ids[i]][p];
        y[turn][i] = labels[batch->ids[i]];
    }
    *out = (dro_net_batch){.count = batch->count, .x = x[turn][0], .labels = y[turn]};
    return DRO_OK;
}

static dro_net *build(dro_context *ctx)
{
    dro_net *net;
    if (dro_net_create(ctx, 1, SIDE, SIDE, &net) != DRO_OK)
        return NULL;
    dro_node x = dro_net_conv(net, "conv1", dro_net_input(net), 16, 3, 1, 1);
    x = dro_net_relu(net, dro_net_norm(net, "bn1", x));
    dro_node y = dro_net_conv(net, "conv2", x, 16, 3, 1, 1);
    x = dro_net_relu(net, dro_net_add(net, dro_net_norm(net, "bn2", y), x));
    dro_net_output(net, dro_net_linear(net, "fc", dro_net_global_pool(net, x), CLASSES));
    return net;
}

int main(int argc, char **argv)
{
    dro_context *ctx;
    dro_problem problem;
    dro_optimizer *opt = NULL;
    dro_net_source source = {
        .size = sizeof(dro_net_source), .fetch = fetch, .n = N, .max_batch = MOST};
    if (dro_context_create("auto", 0, &ctx) != DRO_OK)
        return 1;
    draw_images();
    dro_net *net = build(ctx);
    dro_status status = net ? dro_net_ready(net) : DRO_ERR_MEMORY;
    if (status == DRO_OK && (status = dro_net_problem(net, &source, &problem)) == DRO_OK &&
        (status = dro_optimizer_create(ctx, argc > 1 ? argv[1] : "recover", &problem, &opt)) ==
            DRO_OK) {
        dro_optimizer_set(opt, "eta", "0.1");
        dro_optimizer_set(opt, "lambda", "1");
        dro_optimizer_set(opt, "batch", "32");
        dro_optimizer_set(opt, "steps", "150");
        status = dro_optimizer_start(opt, dro_net_weights(net));
    }
    while (status == DRO_OK)
        status = dro_optimizer_step(opt);
    if (status != DRO_ERR_END) {
        fprintf(stderr, "%s\n", dro_context_error(ctx));
        return 1;
    }
    int right[CLASSES] = {0}, seen[CLASSES] = {0};
    for (int i = 0; i < N; i += 50) {
        float logits[50][CLASSES];
        dro_net_batch batch = {.count = 50, .x = images[i], .labels = labels + i};
        if (dro_net_evaluate(net, dro_optimizer_w(opt), &batch, logits[0], NULL) != DRO_OK)
            return 1;
        for (int k = 0; k < 50; k++) {
            int best = 0;
            for (int c = 1; c < CLASSES; c++)
                best = logits[k][c] > logits[k][best] ? c : best;
            seen[labels[i + k]]++;
            right[labels[i + k]] += best == labels[i + k];
        }
    }
    for (int c = 0; c < CLASSES; c++)
        printf("class %d: %4d images, %5.1f %% right\n", c, seen[c], 100.0 * right[c] / seen[c]);
    dro_optimizer_destroy(opt);
    dro_net_destroy(net);
    dro_context_destroy(ctx);
    return argc > 1 || right[3] > seen[3] * 9 / 10 ? 0 : 1;
}
