// Design, export and evaluate by generated types alone; print both predictions of the exported sections.

import java.io.File
import org.openapitools.client.apis.DefaultApi
import org.openapitools.client.infrastructure.Serializer
import org.openapitools.client.models.DesignBody
import org.openapitools.client.models.EvaluateBody
import org.openapitools.client.models.ExportBody
import org.openapitools.client.models.ExportTarget
import org.openapitools.client.models.RunningFilter

object Calls {
    @JvmStatic
    fun main(arguments: Array<String>) {
        val service = DefaultApi(arguments[0])
        val ear = Serializer.gson.fromJson(File(arguments[1]).readText(), DesignBody::class.java)
        val (primary, secondary) = Pair(ear.primary, ear.secondary)
        val designed = RunningFilter(taps = service.refine(ear).fir)
        val target = ExportTarget(sampleRate = 768_000.0, numberFormat = "float64")
        val exported = service.export(
            ExportBody(fir = designed, target = target, sampleRate = 48_000, primary = primary, secondary = secondary)
        )
        val chip = RunningFilter(sos = exported.coefficients.sos, sampleRate = exported.coefficients.sampleRate)
        val evaluated = service.evaluate(
            EvaluateBody(fir = chip, sampleRate = 48_000, primary = primary!!, secondary = secondary!!)
        )
        println("${exported.prediction.meanNoiseReductionDb} ${evaluated.prediction.meanNoiseReductionDb}")
    }
}
